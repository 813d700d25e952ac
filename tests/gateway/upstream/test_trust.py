"""Contexts of authorities: one for all servers that need the same, and a new one where the file has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from gateway.settings import BackendSettings
from gateway.upstream import trust
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.trust import trusting


@pytest.fixture
def ca_file(tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    return file


def test_servers_with_the_same_authorities_share_a_context(ca_file: Path) -> None:
    assert trusting("") is trusting("")
    assert trusting(str(ca_file)) is trusting(str(ca_file)) is not trusting("")
    assert trusting("", ("http/1.1",)) is not trusting("")


def test_a_file_that_has_changed_makes_another_and_its_backend_another_endpoint(ca_file: Path) -> None:
    before = trusting(str(ca_file))
    settings = BackendSettings(url="https://engine.test", ca_file=str(ca_file))
    endpoint = Endpoint(settings, 30.0)
    assert endpoint.is_same(Endpoint(settings, 30.0))
    trustme.CA(key_type=trustme.KeyType.RSA).cert_pem.write_to_path(str(ca_file))
    assert trusting(str(ca_file)) is not before
    assert not endpoint.is_same(Endpoint(settings, 30.0))


def test_a_file_that_is_gone_or_holds_no_certificate_is_an_error_although_it_was_read_once(
    ca_file: Path,
) -> None:
    trusting(str(ca_file))
    ca_file.write_text("no certificate")
    with pytest.raises(OSError):
        trusting(str(ca_file))
    ca_file.unlink()
    with pytest.raises(FileNotFoundError):
        trusting(str(ca_file))


def test_only_so_many_are_kept(ca_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_MOST", 2)
    monkeypatch.setattr(trust, "_known", {})
    for number in range(4):
        copy = ca_file.with_name(f"{number}.pem")
        copy.write_bytes(ca_file.read_bytes())
        trusting(str(copy))
    assert len(trust._known) == 2
