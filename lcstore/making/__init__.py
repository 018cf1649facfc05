"""Making the edges that a compaction plans, here or by the workers of a cluster."""
