"""Properties are judged by what they find, not by how fast a shared machine draws examples."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For `make mutate`: a mutant that is found need not be found in its smallest form, and each run finds the same ones.
settings.register_profile(
    "mutants",
    parent=settings.get_profile("headrace"),
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("headrace")
