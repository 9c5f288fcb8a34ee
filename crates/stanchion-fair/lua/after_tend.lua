read_holder()
settle()
return unless_unfinished(-1)
