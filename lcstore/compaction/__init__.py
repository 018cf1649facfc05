"""Carrying out what compaction plans: merged edges are made, here or by tasks, and no state changes."""
