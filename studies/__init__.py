"""The study on real data: its grids, and how their results are stored."""
