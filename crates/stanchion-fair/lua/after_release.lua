return unless_unfinished(farewell(ARGV[4], found, found))
