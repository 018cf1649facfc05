"""A whole store, copied to another place."""
