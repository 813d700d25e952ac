"""A rule of `admin`: a listener of its own needs an address of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from gateway.admin_settings import AdminSettings
from gateway.configuration.reading import Faults, Reading
from gateway.settings import ServerSettings


def admin_faults(readings: Sequence[Reading]) -> Faults:
    admin = _values(readings, AdminSettings)
    if not admin.get("port"):
        return
    server = _values(readings, ServerSettings)
    if (admin["host"], admin["port"]) == (server["host"], server["port"]):
        key = next(reading.at("port") for reading in readings if reading.record is AdminSettings)
        yield key, "is where clients are served; another port is needed, or none"


def _values(readings: Sequence[Reading], record: type[Any]) -> dict[str, Any]:
    given = next((reading.values for reading in readings if reading.record is record), {})
    return {field.name: given.get(field.name, field.default) for field in fields(record)}
