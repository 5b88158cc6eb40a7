"""How uneven a federation is at the paper's three levels, told before anything is trained."""
