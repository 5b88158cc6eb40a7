"""Figures of runs, one file per figure; each function returns a matplotlib Figure."""
