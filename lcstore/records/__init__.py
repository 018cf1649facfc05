"""Reading records of every kind: one at a time, checked, and kept; nothing is listed here."""
