"""lcstore beside its peers on training made on the spot: `python -m benchmarks.evaluation`."""
