"""Unlearning algorithms: one small file each, named in one registry."""
