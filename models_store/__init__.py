"""Artefacts: content-addressed blobs, sets of rows, safetensors checkpoints. Imports neither app nor workers."""
