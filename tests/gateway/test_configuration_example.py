"""The example file names every setting, at its default, with a comment that states its range; and the `check` command."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.alert_settings import AlertReceiverSettings, AlertSettings
from gateway.configuration import load
from gateway.configuration.check import check_command
from gateway.gpu_settings import GpuSettings
from gateway.settings import (
    BackendSettings,
    BatchingSettings,
    PoolSettings,
    Settings,
    TenantSettings,
    WindowSettings,
)

EXAMPLE = Path(__file__).parents[2] / "deploy" / "headrace.example.yaml"


def settings_of(kind: type[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """`Record.field` and the metadata of every setting there is."""
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        yield f"{kind.__name__}.{field.name}", dict(field.metadata)
        for inner in (hints[field.name], *typing.get_args(hints[field.name])):
            if isinstance(inner, type) and is_dataclass(inner):
                yield from settings_of(inner)


def keys_of(kind: type[Any], node: yaml.Node) -> Iterator[tuple[str, int]]:
    """`Record.field` and the line, counted from 0, of every setting that a file gives."""
    if not isinstance(node, yaml.MappingNode):
        return  # null, where another example gives it
    hints = typing.get_type_hints(kind)
    for key, value in node.value:
        yield f"{kind.__name__}.{key.value}", key.start_mark.line
        for inner in (hints[key.value], *typing.get_args(hints[key.value])):
            if isinstance(inner, type) and is_dataclass(inner):
                items = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for item in items:
                    yield from keys_of(inner, item)


def first_lines() -> dict[str, int]:
    root = yaml.compose(EXAMPLE.read_text(), yaml.SafeLoader)
    assert root is not None
    lines: dict[str, int] = {}
    for name, line in keys_of(Settings, root):
        lines.setdefault(name, line)
    return lines


def test_the_example_names_every_setting() -> None:
    assert first_lines().keys() == dict(settings_of(Settings)).keys()


def test_every_setting_of_the_example_has_a_comment_that_states_its_range() -> None:
    lines = EXAMPLE.read_text().splitlines()
    metadata = dict(settings_of(Settings))
    for name, line in first_lines().items():
        comment = lines[line - 1].strip()
        assert comment.startswith("# "), name
        if bounds := metadata[name]:
            allowed = f"{bounds['at_least']:.15g} to {bounds['at_most']:.15g}"
            assert allowed in comment, name


def test_the_example_is_valid_and_gives_the_defaults() -> None:
    example = load(str(EXAMPLE), {})
    assert example == Settings(
        pools=example.pools,
        business_types=example.business_types,
        tenants=example.tenants,
        rules=example.rules,
        alerts=AlertSettings(receivers=example.alerts.receivers),
    )
    [receiver] = example.alerts.receivers
    assert receiver == AlertReceiverSettings(url=receiver.url, form=receiver.form)
    [gpu] = [one.gpu for one in example.pools[1].backends]
    assert gpu == GpuSettings(url=gpu.url, labels=gpu.labels) if gpu else False
    pool = example.pools[0]
    assert pool.backends == (BackendSettings(url=pool.backends[0].url),)
    assert (pool.window, pool.batching) == (WindowSettings(max=16), BatchingSettings())
    assert replace(pool, window=None, batching=None) == PoolSettings(name=pool.name, backends=pool.backends)
    [tenant] = example.tenants
    assert tenant == TenantSettings(name=tenant.name, key_sha256=tenant.key_sha256)


def test_check_prints_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_command(str(EXAMPLE), {}) == 0
    out, err = capsys.readouterr()
    assert not err
    for part in (
        "valid",
        "127.0.0.1:8080",
        "high-batch",
        "low-latency",
        "window 16",
        "business type credit-card: 500 ms, lane interactive",
        "tenant example: 1 key(s), up to interactive",
        "clients without a key are allowed, up to interactive",
        "http://127.0.0.1:8002",
    ):
        assert part in out


def test_check_brackets_an_ipv6_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "server: {host: '::1', port: 0}\npools: [{name: a, backends: [{url: 'http://a', api_key: s3cret}]}]\n"
    )
    assert check_command(str(path), {}) == 0
    out = capsys.readouterr().out
    assert "listens on [::1]:(any free port)" in out
    assert "no window" in out
    assert "business type" not in out and "tenant" not in out
    assert "s3cret" not in out


def test_check_tells_windows_that_move_types_without_a_target_and_who_is_shut_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "pools: [{name: a, window: {min: 2, max: 8}, backends: [{url: 'http://a'}]},\n"
        "{name: b, window: {max_tokens: 900, max_prefill_tokens: 80}, backends: [{url: 'http://b'}]},\n"
        "{name: c, window: {prefill_seconds: 0.5}, backends: [{url: 'http://c'}]}]\n"
        "business_types: [{name: other}]\n"
        f"tenants: [{{name: t, key_sha256: ['{'a' * 64}'], max_lane: emergency}}]\n"
        "anonymous: {allow: false}\n"
    )
    assert check_command(str(path), {}) == 0
    out = capsys.readouterr().out
    assert "window 2 to 8 per backend" in out
    assert "automatic window and 900 tokens and 80 tokens of prefill per backend" in out
    assert "automatic window and 0.5 s of prefill per backend" in out
    assert "business type other: no target, lane of the tenant" in out
    assert "tenant t: 1 key(s), up to emergency" in out and "a" * 64 not in out
    assert "clients without a key are refused" in out


def test_check_prints_every_fault_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("server: {port: x}\nruels: []\n")
    assert check_command(str(path), {}) == 2
    out, err = capsys.readouterr()
    assert not out
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        [f"{path}:1", "server.port"],
        [f"{path}:1", "pools"],
        [f"{path}:2", "ruels"],
    ]
