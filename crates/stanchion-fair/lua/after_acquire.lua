return unless_unfinished(stand(ARGV[4], ARGV[5] + 0, ARGV[6] + 0, ARGV[7], ARGV[8]))
