"""Fixtures of the whole suite, by subject in tests/fixtures."""

pytest_plugins = [
    "tests.fixtures.servers",
    "tests.fixtures.settings",
    "tests.fixtures.api",
    "tests.fixtures.world",
    "tests.fixtures.concurrency",
]
