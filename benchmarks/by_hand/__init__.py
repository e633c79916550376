"""The training steps of `benchmarks.training_step`, written by hand in each framework's own best idiom.

Each file has `make(job) -> step`, with `step(x, y) -> float loss`: from NumPy batches to a loss that has arrived.
"""
