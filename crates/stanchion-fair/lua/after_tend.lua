return unless_unfinished(settle())
