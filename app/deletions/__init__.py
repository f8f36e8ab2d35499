"""Deletion requests: accepted, planned, carried out, and finished when no model in use holds their rows."""
