"""What a sealed value gives back and to whom, and which keys cannot be used."""

from __future__ import annotations

import base64
import sys

import pytest

from gateway.sessions.encryption import Sealing, UnusableKeys

OLD, NEW = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
PLAIN = b"My credit card is gone"


def test_a_sealed_value_hides_what_was_said_and_gives_it_back_for_its_session() -> None:
    sealing = Sealing([OLD])
    value = sealing.sealed(PLAIN, "session-1")
    assert PLAIN not in value and sealing.sealed(PLAIN, "session-1") != value
    assert sealing.opened(value, "session-1") == PLAIN
    assert sealing.opened(value, "session-2") is None


@pytest.mark.parametrize("at", [0, 1, 5, 20, -1])
def test_a_value_with_a_changed_byte_is_not_opened(at: int) -> None:
    sealing = Sealing([OLD])
    value = bytearray(sealing.sealed(PLAIN, "s"))
    value[at] ^= 1
    assert sealing.opened(bytes(value), "s") is None


@pytest.mark.parametrize("length", [0, 1, 5, 10, 17, 20])
def test_a_value_that_was_cut_is_not_opened(length: int) -> None:
    sealing = Sealing([OLD])
    assert sealing.opened(sealing.sealed(PLAIN, "s")[:length], "s") is None


def test_a_key_is_changed_by_putting_the_new_one_in_front() -> None:
    before, after, without = Sealing([OLD]), Sealing([NEW, OLD]), Sealing([NEW])
    old = before.sealed(PLAIN, "s")
    assert after.opened(old, "s") == PLAIN
    assert without.opened(old, "s") is None
    assert without.opened(after.sealed(PLAIN, "s"), "s") == PLAIN


def test_without_keys_all_stays_plain_and_with_keys_what_was_plain_is_still_read() -> None:
    value = Sealing([]).sealed(PLAIN, "s")
    assert value == b"p" + PLAIN
    assert Sealing([OLD]).opened(value, "s") == PLAIN


@pytest.mark.parametrize("key", ["", "short", "!" * 44, "é", base64.b64encode(b"x" * 31).decode()])
def test_a_key_that_is_not_32_bytes_in_base64_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UnusableKeys, match="32 bytes in base64") as caught:
        Sealing([OLD, key])
    assert not key or key not in str(caught.value)


def test_keys_without_the_package_that_encrypts_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(UnusableKeys, match=r"headrace\[encryption\]"):
        Sealing([OLD])
    assert Sealing([]).sealed(PLAIN, "s") == b"p" + PLAIN
