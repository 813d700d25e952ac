"""Where each case of the second half of the field cases is held, or why it does not apply."""

from __future__ import annotations

CASES_B: dict[str, tuple[str, str] | str] = {
    "B171": (
        "tests/field/test_memory_leak.py",
        "test_b171_prefixes_and_sessions_have_one_bound_however_many_prompts_and_backends",
    ),
    "B173": (
        "tests/field/test_memory_leak.py",
        "test_b173_no_feature_makes_a_client_or_a_tls_context_for_each_call",
    ),
    "B174": (
        "tests/field/test_memory_leak.py",
        "test_b174_behind_a_stalled_backend_no_more_are_taken_than_may_run_and_wait",
    ),
    "B176": "one process: a change made at run time reaches all of it at once; several workers are not asked for by any issue",
    "B177": "one process holds queue, windows and circuits; README, Operations: several gateways divide `window.max`",
    "B179": ("tests/field/test_multi_worker.py", "test_b179_every_scrape_sees_one_sum_that_never_falls"),
    "B180": (
        "tests/field/test_multi_worker.py",
        "test_b180_each_gateway_probes_once_an_interval_whatever_its_clients_do",
    ),
}
