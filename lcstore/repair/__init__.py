"""Setting aside what is damaged, such that all that has a sound path is found."""
