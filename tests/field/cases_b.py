"""Where each case of the second half of the field cases is held, or why it does not apply."""

from __future__ import annotations

CASES_B: dict[str, tuple[str, str] | str] = {
    "B140": (
        "tests/field/test_security.py",
        "test_b140_a_key_of_the_gateway_reaches_no_engine_from_any_place_on_any_route",
    ),
    "B141": (
        "tests/field/test_security.py",
        "test_b141_a_second_backend_gets_nothing_that_was_meant_for_the_first",
    ),
    "B143": (
        "tests/field/test_security.py",
        "test_b143_huge_and_countless_headers_are_refused_and_cost_no_memory",
    ),
    "B144": (
        "tests/field/test_security.py",
        "test_b144_no_value_of_a_client_can_forge_or_split_a_line_of_a_log",
    ),
    "B146": (
        "tests/field/test_security.py",
        "test_b146_a_huge_request_id_makes_no_larger_stream_than_a_short_one",
    ),
    "B147": ("tests/field/test_security.py", "test_b147_a_client_cannot_name_itself_urgent_or_somebody_else"),
    "B149": (
        "tests/field/test_token_counting.py",
        "test_b149_a_large_prompt_keeps_the_loop_no_longer_than_a_stream_may_wait",
    ),
    "B150": (
        "tests/field/test_token_counting.py",
        "test_b150_nothing_but_the_backend_is_asked_at_the_start_and_at_the_first_request",
    ),
    "B152": (
        "tests/field/test_token_counting.py",
        "test_b152_media_are_counted_by_their_size_and_not_as_text",
    ),
    "B153": (
        "tests/field/test_token_counting.py",
        "test_b153_a_content_of_any_shape_is_counted_as_far_as_it_is_known",
    ),
    "B155": (
        "tests/field/test_token_counting.py",
        "test_b155_a_prompt_of_any_length_is_classified_or_a_default_one",
    ),
    "B156": (
        "tests/field/test_tool_calls.py",
        "test_b156_three_parallel_calls_keep_their_indexes_and_their_arguments",
    ),
    "B158": (
        "tests/field/test_tool_calls.py",
        "test_b158_pieces_of_arguments_without_an_id_pass_as_they_come",
    ),
    "B159": (
        "tests/field/test_tool_calls.py",
        "test_b159_an_odd_event_at_any_place_passes_and_nothing_is_logged",
    ),
    "B161": (
        "tests/field/test_models_list.py",
        "test_b161_the_list_holds_each_name_that_can_be_called_and_holds_it_once",
    ),
    "B162": (
        "tests/system/test_models.py",
        "test_an_alias_is_replaced_on_every_route_and_not_a_byte_beside_it",
    ),
    "B164": (
        "tests/field/test_endpoints.py",
        "test_b164_the_encoding_format_reaches_the_engine_as_sent_and_its_vectors_come_back",
    ),
    "B165": (
        "tests/field/test_endpoints.py",
        "test_b165_audio_arrives_whole_and_soon_with_the_model_behind_it",
    ),
    "B167": (
        "tests/field/test_endpoints.py",
        "test_b167_every_field_of_a_form_is_forwarded_and_its_events_come_one_by_one",
    ),
    "B168": (
        "tests/field/test_endpoints.py",
        "test_b168_every_route_that_an_engine_lists_below_v1_is_forwarded_or_known_as_not",
    ),
    "B170": ("tests/field/test_endpoints.py", "test_b170_forms_without_an_input_pass_unchanged"),
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
