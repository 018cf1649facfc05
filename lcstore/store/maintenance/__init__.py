"""Maintenance: retiring, compacting, collecting, repairing. Each may run beside writers and readers."""
