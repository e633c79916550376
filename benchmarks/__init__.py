"""Measurements against the hand-written equivalent, as paired ratios. Run all: `python -m benchmarks`."""
