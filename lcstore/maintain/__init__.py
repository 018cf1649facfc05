"""Compacting, retiring, collecting. Each may run beside writers and readers."""
