"""Saving: coding a state, storing its objects, committing it by one record."""
