"""A worker runs no plugin that its own operator has not approved, whatever the database says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.config import Settings
from workers.assemble import architecture
from workers.nets.factory import BadArchitecture

_STORED = {"family": "plugin", "name": "mine"}


def test_a_plugin_needs_this_workers_approval(config: Settings, configure: Callable[..., Settings]) -> None:
    """The API's check alone would trust the database."""
    with pytest.raises(BadArchitecture, match="approved"):
        architecture(_STORED, config)
    assert architecture(_STORED, configure(network_plugins="mine")).name == "mine"
    assert architecture({"name": "small_cnn"}, config).name == "small_cnn"
