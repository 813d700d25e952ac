"""Properties are judged by what they find, not by how fast a shared machine draws examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")
