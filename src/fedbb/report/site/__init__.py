"""Interactive pages: each one file, with its data inside, that needs no network."""
