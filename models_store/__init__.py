"""Artefacts: content-addressed blobs, sets of rows, checkpoints. Imports neither app nor workers."""
