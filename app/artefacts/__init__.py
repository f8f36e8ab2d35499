"""Artefacts: which blobs of the store the database needs, and removing the others."""
