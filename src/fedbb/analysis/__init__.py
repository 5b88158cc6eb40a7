"""Analysis of label imbalance at the paper's three levels, before anything is trained."""
