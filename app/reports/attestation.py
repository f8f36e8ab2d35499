"""The signed envelope around a report: DSSE 1.0.2 with an in-toto Statement v1, signed by Ed25519.

Anybody can check it without this code: the signature is over the pre-authentication encoding of the payload
type and the payload's bytes, and the payload is carried in the envelope as signed, so nothing has to be
serialised again. Payloads are written as canonical JSON: UTF-8, keys sorted by code point, no spaces, no
escapes beyond those JSON requires, no NaN or infinity, numbers as Python's shortest round-trip form.

Sources: github.com/secure-systems-lab/dsse (protocol.md), github.com/in-toto/attestation (spec/v1).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:expunge:attestation:unlearning:v1"


class AttestationInvalid(Exception):
    """The envelope is malformed, is not about an in-toto statement, or was not signed by this key."""


class KeyUnusable(Exception):
    """There is no Ed25519 key where one should be."""


def canonical_json(value: object) -> bytes:
    """`value` in the form that is hashed and signed. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def load_or_create_key(path: Path) -> Ed25519PrivateKey:
    """The signing key in `path` (PKCS #8, PEM); the first call makes one, readable by its owner alone.

    Raises:
        KeyUnusable: the file holds no unencrypted Ed25519 key.
    """
    if not path.exists():
        _create_key(path)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyUnusable(f"{path} holds no private key that can be read without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"the key in {path} is not an Ed25519 key")
    return key


def _create_key(path: Path) -> None:
    """Write a new key beside `path` and link it there, so that of two first calls one key remains, whole."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass  # another process was first; its key counts
    finally:
        draft.unlink()


def public_pem(public: Ed25519PublicKey) -> str:
    """The public key as PEM (SubjectPublicKeyInfo), for whoever verifies."""
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(encoding, form).decode()


def load_public_pem(pem: str) -> Ed25519PublicKey:
    """The other way round. Raises KeyUnusable for anything but an Ed25519 public key."""
    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable("this is not a public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable("the public key is not an Ed25519 key")
    return key


def key_id(public: Ed25519PublicKey) -> str:
    """SHA-256 of the raw public key, in hexadecimal."""
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()


def statement(*, subjects: Mapping[str, str], predicate: Mapping[str, Any]) -> dict[str, Any]:
    """An in-toto statement about `subjects`: name to SHA-256 (weights, report, rows of the data set)."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(predicate),
    }


def sign(content: Mapping[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The DSSE envelope around a statement."""
    payload = canonical_json(content)
    signature = key.sign(_pre_authentication_encoding(payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": key_id(key.public_key()), "sig": base64.b64encode(signature).decode()},
        ],
    }


def verify(envelope: object, public: Ed25519PublicKey) -> dict[str, Any]:
    """The statement in `envelope`, if one of its signatures is by `public`; key ids are hints, not proof.

    Raises:
        AttestationInvalid: saying what is wrong.
    """
    if not isinstance(envelope, Mapping) or envelope.get("payloadType") != PAYLOAD_TYPE:
        raise AttestationInvalid(f"this is no DSSE envelope of type {PAYLOAD_TYPE}")
    payload = _base64(envelope.get("payload"))
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or not all(isinstance(entry, Mapping) for entry in signatures):
        raise AttestationInvalid("the envelope has no list of signatures")
    encoded = _pre_authentication_encoding(payload)
    if not any(_is_by(public, _base64(entry.get("sig")), encoded) for entry in signatures):
        raise AttestationInvalid("no signature is by this key: the content was changed or signed by another")
    try:
        content = json.loads(payload)
    except ValueError:
        raise AttestationInvalid("the payload is not JSON") from None
    if not isinstance(content, dict) or content.get("_type") != STATEMENT_TYPE:
        raise AttestationInvalid("the payload is not an in-toto statement")
    return content


def _pre_authentication_encoding(payload: bytes) -> bytes:
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _base64(text: object) -> bytes:
    """Standard or URL-safe base64, as DSSE demands of verifiers."""
    if not isinstance(text, str):
        raise AttestationInvalid("payload and signatures must be base64 text")
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise AttestationInvalid("payload or signature is not base64") from None


def _is_by(public: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    try:
        public.verify(signature, content)
    except InvalidSignature:
        return False
    return True
