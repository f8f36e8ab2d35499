"""Fixtures of the whole suite, by subject in tests/fixtures."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: nothing here is judged by its time.
settings.register_profile("expunge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("expunge")

pytest_plugins = [
    "tests.fixtures.servers",
    "tests.fixtures.settings",
    "tests.fixtures.api",
    "tests.fixtures.world",
    "tests.fixtures.artefacts",
    "tests.fixtures.concurrency",
    "tests.fixtures.s3",
]
