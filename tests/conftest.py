"""Properties are judged by what they find, not by how fast a shared machine draws examples."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For `make coverage` and `make mutate`: each run draws the same examples, and what is found need not be found in its smallest form.
settings.register_profile(
    "repeatable",
    parent=settings.get_profile("headrace"),
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("headrace")
