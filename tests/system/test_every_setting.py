"""Each setting does something: `HELD_BY` names, for every field of `gateway.settings`, a test that fails when the field is ignored."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from gateway.settings import Settings

ROOT = Path(__file__).parents[1]
SETTINGS = "system/test_settings.py"
FRONT = "system/test_front.py"
FAILURES = "system/test_failures.py"

HELD_BY = {
    "ServerSettings.host": (SETTINGS, "test_host_and_port_are_where_it_listens"),
    "ServerSettings.port": (SETTINGS, "test_host_and_port_are_where_it_listens"),
    "ServerSettings.max_body_mb": (FRONT, "test_a_body_above_the_limit_gets_413_even_while_it_is_still_sent"),
    "ServerSettings.max_header_kb": (SETTINGS, "test_max_header_kb_bounds_a_head"),
    "ServerSettings.header_seconds": (SETTINGS, "test_header_seconds_bound_a_slow_head"),
    "ServerSettings.body_gap_seconds": (
        FRONT,
        "test_a_body_that_stops_coming_is_answered_with_408_and_counted",
    ),
    "ServerSettings.stall_seconds": (
        "system/test_disconnects.py",
        "test_clients_that_do_not_read_are_cut_off_and_hold_little_memory",
    ),
    "ServerSettings.keep_alive_seconds": (
        FRONT,
        "test_a_connection_serves_many_requests_and_is_closed_after_its_idle_time",
    ),
    "ServerSettings.drain_seconds": (SETTINGS, "test_drain_seconds_bound_what_runs_at_the_end"),
    "ServerSettings.cors_origins": (
        FRONT,
        "test_with_cors_a_preflight_needs_no_backend_and_errors_carry_the_headers",
    ),
    "TimeoutSettings.connect_seconds": (SETTINGS, "test_connect_seconds_bound_the_wait_for_a_connection"),
    "TimeoutSettings.first_byte_seconds": (
        FAILURES,
        "test_a_time_limit_before_the_first_byte_is_a_504_that_names_itself",
    ),
    "TimeoutSettings.gap_seconds": (
        FAILURES,
        "test_a_time_limit_inside_a_stream_is_an_error_event_before_the_close",
    ),
    "TimeoutSettings.total_seconds": (
        FAILURES,
        "test_a_time_limit_inside_a_stream_is_an_error_event_before_the_close",
    ),
    "UpstreamSettings.max_connections": (FAILURES, "test_more_requests_than_upstream_connections_get_503"),
    "UpstreamSettings.max_idle_connections": (SETTINGS, "test_max_idle_connections_bound_what_is_kept"),
    "UpstreamSettings.idle_seconds": (SETTINGS, "test_idle_seconds_end_a_kept_connection"),
    "UpstreamSettings.resolve_seconds": (SETTINGS, "test_resolve_seconds_bound_the_trust_in_an_address"),
    "ProbeSettings.interval_seconds": (SETTINGS, "test_interval_seconds_lie_between_probes"),
    "ProbeSettings.timeout_seconds": (SETTINGS, "test_timeout_seconds_bound_a_probe"),
    "ProbeSettings.load_seconds": ("gateway/test_probes.py", "test_load_seconds_lie_between_readings"),
    "ProbeSettings.failures": (SETTINGS, "test_so_many_failures_take_a_backend_out"),
    "QueueSettings.max_waiting": (SETTINGS, "test_max_waiting_bounds_the_queue"),
    "QueueSettings.max_wait_seconds": (SETTINGS, "test_max_wait_seconds_bound_the_wait"),
    "RetrySettings.max_retries": (FAILURES, "test_attempts_are_bound_by_the_setting_and_by_the_backends"),
    "LogSettings.requests": (SETTINGS, "test_the_request_log_can_be_switched_off"),
    "BackendSettings.url": (SETTINGS, "test_names_and_urls_of_pools_and_backends_say_where_a_request_went"),
    "BackendSettings.name": (SETTINGS, "test_names_and_urls_of_pools_and_backends_say_where_a_request_went"),
    "BackendSettings.api_key": (
        "system/test_headers.py",
        "test_a_backends_own_key_takes_the_place_of_the_clients",
    ),
    "BackendSettings.ca_file": (SETTINGS, "test_ca_file_verifies_requests_and_probes"),
    "WindowSettings.max": (SETTINGS, "test_max_waiting_bounds_the_queue"),
    "PoolSettings.name": (SETTINGS, "test_names_and_urls_of_pools_and_backends_say_where_a_request_went"),
    "PoolSettings.role": (SETTINGS, "test_the_role_of_a_pool_is_what_check_tells_of_it"),
    "Settings.aliases": (
        "system/test_models.py",
        "test_an_alias_is_replaced_on_every_route_and_not_a_byte_beside_it",
    ),
}


def leaves(record: Any) -> set[str]:
    """Every field of `record` and of the records in it that is not itself a record."""
    found: set[str] = set()
    hints = get_type_hints(record)
    for field in fields(record):
        inner = [one for one in _parts(hints[field.name]) if is_dataclass(one)]
        found |= {leaf for one in inner for leaf in leaves(one)}
        if not inner:
            found.add(f"{record.__name__}.{field.name}")
    return found


def _parts(hint: Any) -> list[Any]:
    arguments = get_args(hint) if isinstance(hint, UnionType) or get_args(hint) else ()
    return [part for argument in arguments for part in _parts(argument)] or [hint]


def test_every_setting_is_held_by_a_test_that_exists() -> None:
    assert HELD_BY.keys() == leaves(Settings)
    for setting, (file, name) in HELD_BY.items():
        tree = ast.parse((ROOT / file).read_text())
        tests = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        ]
        assert len(tests) == 1, f"{setting}: {file} has no {name}"
