"""Edges as readers know them: what each says of every tensor, and what those of a path come to."""
