"""Fixtures of the whole suite, by subject in tests/fixtures."""

pytest_plugins = ["tests.fixtures.servers"]
