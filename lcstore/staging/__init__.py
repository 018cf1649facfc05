"""A state on this machine, as it is to be saved: copied, described, and warned of."""
