return stand(ARGV[4], ARGV[5] + 0, ARGV[6] + 0, ARGV[7])
