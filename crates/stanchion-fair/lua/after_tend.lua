local look = settle()
return look <= trial and look or -1
