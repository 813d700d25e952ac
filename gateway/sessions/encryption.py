"""What was said, sealed before it leaves for a store: AES-256-GCM, bound to the session it is of.

A value begins with `p` where it is plain and with `e` where it is sealed: then come 4 bytes that name the key (of its SHA-256), 12 of nonce, drawn anew each
time, and the sealed bytes. The first key seals; every key opens, so that a key is changed by putting the new one in front. `opened` is None where the key is
not among them or the value is not what was sealed for this session. Plain values are read as well: those from before encryption was switched on.
Without keys all stays plain.

Setting: `sessions.encryption_keys`. `UnusableKeys` where one is not 32 bytes in base64, or the package `cryptography` is missing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from typing import Protocol

KEY_BYTES = 32
_NAME_BYTES = 4
_NONCE_BYTES = 12


class UnusableKeys(ValueError):
    pass


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Sealing:
    def __init__(self, keys: Sequence[str]) -> None:
        self._ciphers: dict[bytes, _Cipher] = {}
        self._first = b""
        for text in keys:
            key = _decoded(text)
            name = hashlib.sha256(key).digest()[:_NAME_BYTES]
            self._first = self._first or name
            self._ciphers[name] = _cipher(key)

    def sealed(self, plain: bytes, bound_to: str) -> bytes:
        if not self._first:
            return b"p" + plain
        nonce = os.urandom(_NONCE_BYTES)
        return (
            b"e" + self._first + nonce + self._ciphers[self._first].encrypt(nonce, plain, bound_to.encode())
        )

    def opened(self, value: bytes, bound_to: str) -> bytes | None:
        if value[:1] == b"p":
            return value[1:]
        start = 1 + _NAME_BYTES
        cipher = self._ciphers.get(value[1:start])
        if value[:1] != b"e" or cipher is None:
            return None
        from cryptography.exceptions import InvalidTag

        nonce = value[start : start + _NONCE_BYTES]
        try:
            return cipher.decrypt(nonce, value[start + _NONCE_BYTES :], bound_to.encode())
        except (InvalidTag, ValueError):
            return None


def _decoded(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise UnusableKeys(
            f"an encryption key is {KEY_BYTES} bytes in base64; `openssl rand -base64 {KEY_BYTES}` makes one"
        )
    return key


def _cipher(key: bytes) -> _Cipher:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise UnusableKeys(
            "encrypted sessions need the package `cryptography`: pip install 'headrace[encryption]'"
        ) from None
    return AESGCM(key)
