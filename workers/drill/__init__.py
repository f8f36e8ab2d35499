"""The drill: the audit's own audit, on networks of which it is known whether they have forgotten."""
