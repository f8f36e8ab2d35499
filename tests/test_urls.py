"""URLs have one form, in which lying below another is beginning with it."""

from __future__ import annotations

import pytest

from app.urls import is_below, object_url


@pytest.mark.parametrize(
    "url", ["s3://bucket", "s3://bucket/a/b.npz", "gs://my-bucket.1/photos of 2026/ä.parquet", "az://c/x"]
)
def test_plain_urls_are_themselves(url: str) -> None:
    """Buckets, folders and files; a slash at the end changes nothing."""
    assert object_url(url) == object_url(f"{url}/") == url


@pytest.mark.parametrize(
    "url",
    [
        *("", "s3://", "s3:///a", "bucket/a", "/bucket", "S3://bucket", "s3:/bucket"),
        *("file:///etc/passwd", "local://a", "http://bucket/a", "https://bucket/a", "ftp://bucket/a"),
        *("s3://bucket/../other", "s3://bucket/a/..", "s3://bucket/./a", "s3://bucket//a"),
        *("s3://bucket/%2e%2e/other", "s3://bucket/a?versionId=1", "s3://bucket/a#b", "s3://bucket/a\\b"),
        *("s3://key:secret@bucket/a", "s3://bucket:9000/a", "s3://bucket@other/a"),
        *("simplecache::s3://bucket/a", "zip://a::s3://bucket/a", "s3://bucket/a::file://b"),
        *("s3://bucket/*", "s3://bucket/[ab]", "s3://bucket/{a,b}", "s3://bucket/a\n", "s3://bucket/\0"),
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    """Nothing that a library could take for another place: and the fault does not repeat it."""
    with pytest.raises(ValueError, match=r"^must ") as found:
        object_url(url)
    assert "bucket" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "below"),
    [
        ("s3://bucket/photos", True),
        ("s3://bucket/photos/a.png", True),
        ("s3://bucket/photos-private", False),
        ("s3://bucket/photo", False),
        ("s3://bucket", False),
        ("s3://bucket-evil/photos", False),
        ("gs://bucket/photos", False),
    ],
)
def test_below_is_a_matter_of_whole_names(url: str, below: bool) -> None:
    """`photos-private` is not below `photos`."""
    assert is_below(object_url(url), object_url("s3://bucket/photos/")) is below
