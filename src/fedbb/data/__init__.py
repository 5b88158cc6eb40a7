"""Data sets as one record, whatever their source."""
