local look = settle()
return look <= beat and look or -1
