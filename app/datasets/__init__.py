"""Data sets, their samples, and the tombstones that keep deleted samples out."""
