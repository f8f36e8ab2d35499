"""Data sets: readers by name, their inspection, the roles of their rows, and batches for training."""
