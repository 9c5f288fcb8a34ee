settle()
return unless_unfinished(-1)
