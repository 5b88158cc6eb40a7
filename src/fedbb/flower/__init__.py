"""Recipes on Flower: the same rounds across real sites (extra `fedbb[flower]`)."""
