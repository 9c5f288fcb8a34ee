return farewell(ARGV[4], found)
