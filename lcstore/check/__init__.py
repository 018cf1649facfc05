"""Looking for damage, and setting aside what is damaged."""
