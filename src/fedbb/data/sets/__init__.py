"""The data sets that a recipe can name."""
