"""Networks by name, from an allow-list."""
