from __future__ import annotations

import base64
import hashlib
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from app.reports.attestation import (
    PAYLOAD_TYPE,
    AttestationInvalid,
    KeyUnusable,
    canonical_json,
    key_id,
    load_or_create_key,
    load_public_pem,
    public_pem,
    sign,
    statement,
    verify,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def content() -> dict[str, Any]:
    return statement(
        subjects={"weights": "a" * 64, "report": "b" * 64},
        predicate={"verdict": "pass", "model": "Größe", "auc": 0.51},
    )


def edited(envelope: dict[str, Any], old: bytes, new: bytes) -> dict[str, Any]:
    payload = base64.b64decode(envelope["payload"])
    assert old in payload
    return {**envelope, "payload": base64.b64encode(payload.replace(old, new)).decode()}


class TestSignAndVerify:
    def test_round_trip(self, content: dict[str, Any]) -> None:
        """What was signed comes back, as an in-toto statement about digests."""
        assert verify(sign(content, KEY), PUBLIC) == content
        assert content["_type"] == "https://in-toto.io/Statement/v1"
        assert content["subject"][1] == {"name": "report", "digest": {"sha256": "b" * 64}}

    def test_can_be_checked_without_this_code(self, content: dict[str, Any]) -> None:
        """DSSE's encoding written out by hand and a bare Ed25519 check accept the envelope."""
        envelope = json.loads(json.dumps(sign(content, KEY)))
        payload = base64.b64decode(envelope["payload"])
        kind = envelope["payloadType"]
        encoded = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
        raw = KEY.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        signature = base64.b64decode(envelope["signatures"][0]["sig"])
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, encoded)
        assert json.loads(payload)["predicate"]["model"] == "Größe"
        assert envelope["signatures"][0]["keyid"] == hashlib.sha256(raw).hexdigest() == key_id(PUBLIC)

    def test_the_same_content_gives_the_same_envelope(self, content: dict[str, Any]) -> None:
        """Neither the order of keys nor a clock enters the signature."""
        turned = dict(reversed(content.items()))
        assert sign(turned, KEY) == sign(content, KEY)

    def test_changed_content_is_refused(self, content: dict[str, Any]) -> None:
        """A verdict edited after signing does not verify."""
        with pytest.raises(AttestationInvalid, match="changed or signed by another"):
            verify(edited(sign(content, KEY), b'"pass"', b'"fail"'), PUBLIC)

    def test_changed_signature_is_refused(self, content: dict[str, Any]) -> None:
        """One bit of the signature is enough."""
        envelope = sign(content, KEY)
        signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
        signature[5] ^= 1
        envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
        with pytest.raises(AttestationInvalid, match="changed or signed by another"):
            verify(envelope, PUBLIC)

    def test_another_key_is_refused_whatever_its_id(self, content: dict[str, Any]) -> None:
        """A key id copied from the right key does not make a signature."""
        forged = sign(content, Ed25519PrivateKey.generate())
        forged["signatures"][0]["keyid"] = key_id(PUBLIC)
        with pytest.raises(AttestationInvalid, match="changed or signed by another"):
            verify(forged, PUBLIC)

    def test_one_good_signature_among_several_is_enough(self, content: dict[str, Any]) -> None:
        """A second signer changes nothing, and URL-safe base64 is read as well."""
        envelope, other = sign(content, KEY), sign(content, Ed25519PrivateKey.generate())
        standard = envelope["signatures"][0]["sig"]
        envelope["signatures"] = [
            *other["signatures"],
            {"sig": standard.replace("+", "-").replace("/", "_")},
        ]
        assert verify(envelope, PUBLIC) == content

    @pytest.mark.parametrize(
        ("spoilt", "fault"),
        [
            ({"payloadType": "application/json"}, "no DSSE envelope"),
            ({"payload": "!!"}, "not base64"),
            ({"payload": None}, "base64 text"),
            ({"signatures": None}, "no list of signatures"),
            ({"signatures": ["x"]}, "no list of signatures"),
            ({"signatures": [{"keyid": "x"}]}, "base64 text"),
            ({"signatures": []}, "no signature is by this key"),
        ],
    )
    def test_malformed_envelopes_are_named(
        self, content: dict[str, Any], spoilt: dict[str, Any], fault: str
    ) -> None:
        """Each broken part of an envelope has its own message."""
        with pytest.raises(AttestationInvalid, match=fault):
            verify({**sign(content, KEY), **spoilt}, PUBLIC)

    @pytest.mark.parametrize("envelope", [None, [], "x"])
    def test_what_is_no_envelope_is_refused(self, envelope: object) -> None:
        """Any JSON value may be handed in; only an object can be an envelope."""
        with pytest.raises(AttestationInvalid, match="no DSSE envelope"):
            verify(envelope, PUBLIC)

    def test_other_signed_content_is_refused(self) -> None:
        """Something else signed by the same key is not an attestation."""
        with pytest.raises(AttestationInvalid, match="not an in-toto statement"):
            verify(sign({"_type": "other"}, KEY), PUBLIC)

    def test_the_type_is_part_of_what_is_signed(self, content: dict[str, Any]) -> None:
        """A signature over the payload alone, without DSSE's encoding, does not verify."""
        envelope = sign(content, KEY)
        bare = KEY.sign(base64.b64decode(envelope["payload"]))
        envelope["signatures"] = [{"sig": base64.b64encode(bare).decode()}]
        assert envelope["payloadType"] == PAYLOAD_TYPE
        with pytest.raises(AttestationInvalid, match="changed or signed by another"):
            verify(envelope, PUBLIC)


class TestCanonicalJson:
    def test_form(self) -> None:
        """Sorted keys, no spaces, UTF-8 without needless escapes."""
        assert canonical_json({"b": [1, 0.1], "a": "Größe\n"}) == '{"a":"Größe\\n","b":[1,0.1]}'.encode()

    @given(json_values)
    def test_reads_back_the_same(self, value: object) -> None:
        """Parsing gives the value back, and writing it again the same bytes."""
        assert json.loads(canonical_json(value)) == value
        assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)

    def test_refuses_what_json_has_no_word_for(self) -> None:
        """NaN in a figure is an error when the report is made, not when somebody reads it."""
        with pytest.raises(ValueError, match="JSON compliant"):
            canonical_json({"auc": float("nan")})


class TestKeys:
    def test_created_once_and_private(self, tmp_path: Path) -> None:
        """The first call makes the key, readable by its owner alone; later calls read the same one."""
        place = tmp_path / "keys" / "signing.pem"
        key = load_or_create_key(place)
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert load_or_create_key(place).private_bytes_raw() == key.private_bytes_raw()
        assert [path.name for path in place.parent.iterdir()] == ["signing.pem"]

    def test_first_calls_at_once_agree(self, tmp_path: Path) -> None:
        """However many processes start together, one key remains and all of them use it."""
        place = tmp_path / "signing.pem"
        with ThreadPoolExecutor(8) as pool:
            keys = list(pool.map(lambda _: load_or_create_key(place).private_bytes_raw(), range(24)))
        assert len(set(keys)) == 1

    def test_another_kind_of_key_is_refused(self, tmp_path: Path) -> None:
        """A key of another algorithm, an encrypted one, and a file that is no key are named."""
        place = tmp_path / "signing.pem"
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem = serialization.Encoding.PEM
        place.write_bytes(generate_private_key(SECP256R1()).private_bytes(pem, form, plain))
        with pytest.raises(KeyUnusable, match="not an Ed25519 key"):
            load_or_create_key(place)
        place.write_bytes(KEY.private_bytes(pem, form, serialization.BestAvailableEncryption(b"secret")))
        with pytest.raises(KeyUnusable, match="without a password"):
            load_or_create_key(place)
        place.write_text("no key")
        with pytest.raises(KeyUnusable, match="without a password"):
            load_or_create_key(place)

    def test_public_key_travels_as_pem(self) -> None:
        """The PEM of the public key gives the key back, and anything else is refused."""
        assert load_public_pem(public_pem(PUBLIC)).public_bytes_raw() == PUBLIC.public_bytes_raw()
        with pytest.raises(KeyUnusable, match="not a public key"):
            load_public_pem("no key")
