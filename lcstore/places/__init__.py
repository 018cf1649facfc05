"""Whole stores, and all those below a place: maintained, verified, copied, deleted in one call."""
