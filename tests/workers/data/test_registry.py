from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.jobs import params
from workers.data.registry import READERS, open_reader


def test_every_declared_reader_exists() -> None:
    """What the API offers and what the workers have are the same names."""
    assert READERS.keys() == params.READERS.keys()


def test_a_reader_is_opened_by_name() -> None:
    """Options arrive as plain data and are validated."""
    assert open_reader("sklearn_digits", "", {"seed": 3}).count == 1797
    with pytest.raises(ValidationError):
        open_reader("sklearn_digits", "", {"seed": -1, "colour": "red"})


def test_an_unknown_reader_fails_loudly() -> None:
    """There is no default reader."""
    with pytest.raises(KeyError):
        open_reader("csv", "", {})


@pytest.mark.parametrize("path", ["../x.parquet", "/etc/passwd", "a/../../b", "a\\b", "a\0b"])
def test_file_paths_stay_relative(path: str) -> None:
    """A listed file cannot point out of the location."""
    with pytest.raises(ValidationError):
        params.reader_options("parquet", {"files": [{"path": path}]})


def test_schemas_describe_the_options() -> None:
    """Every reader's options have a JSON schema that admits no others."""
    for name, info in params.READERS.items():
        schema = params.reader_schema(name)
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == set(params.plain_data(info.options()))
