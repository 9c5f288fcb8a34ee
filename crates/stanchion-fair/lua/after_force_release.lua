pcall(settle)
return 1
