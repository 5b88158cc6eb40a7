"""Running a recipe and keeping what comes of it in a folder."""
