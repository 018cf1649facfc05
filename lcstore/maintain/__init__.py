"""Retiring and collecting: what goes of a store, and what must stay, beside writers and readers."""
