"""What training frameworks call lcstore through: each module imports its framework, and nothing else does."""
