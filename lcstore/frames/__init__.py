"""A frame's bytes: built, parsed and checked, and what its levels and planes stand for."""
