"""Reading, decoding and caching image files."""
