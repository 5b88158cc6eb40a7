"""The two ends of a run; all of their code is in fedbb."""
