"""Recipes: what to run, read from TOML or JSON into frozen records."""
