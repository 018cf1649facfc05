"""``lcstore demo``: a real training run that dies for real, and goes on from its store."""
