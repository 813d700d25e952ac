"""Every field case of the requirements, by its id: which tests hold it, or why it does not apply here.

`HELD_BY` names tests under `tests/`, those that were written for the case and those that held it already; `NOT_HERE` gives reasons.
`OTHERWISE` says of cases that are held where the right behaviour here is another than theirs, and why.
"""

from __future__ import annotations

DISCONNECTS = "system/test_disconnects.py"
FAILURES = "system/test_failures.py"
BYTES = "system/test_bytes.py"
HEADERS = "system/test_headers.py"
FRONT = "system/test_front.py"
QUEUEING = "system/test_queueing.py"
BREAKER = "system/test_breaker.py"
LIFECYCLE = "system/test_lifecycle.py"
SHARED_SESSIONS = "system/test_shared_sessions.py"
KEYS = "system/test_keys.py"
METRICS = "system/test_metrics.py"
TAGS = "system/test_tags.py"
EMERGENCIES = "system/test_emergencies.py"
PATHS = "gateway/test_paths.py"
TABLE = "routing/test_affinity_table.py"

IDS = (
    "B002", "B003", "B005", "B006", "B008", "B009", "B011", "B012", "B014", "B015", "B017", "B018", "B020", "B021", "B023",
    "B024", "B026", "B027", "B029", "B030", "B032", "B033", "B035", "B036", "B038", "B039", "B041", "B042", "B044", "B045",
    "B047", "B048", "B050", "B051", "B053", "B054", "B056", "B057", "B059", "B060", "B062", "B063", "B065", "B066", "B068",
    "B069", "B071", "B072", "B074", "B075", "B077", "B078", "B080", "B081", "B083", "B084", "B086", "B087", "B089", "B090",
    "B092", "B093", "B095", "B096", "B098", "B099", "B101", "B102", "B104", "B105", "B107", "B108", "B110", "B111", "B113",
    "B114", "B116", "B117", "B119", "B120", "B122", "B123", "B125", "B126", "B128", "B129", "B131", "B132", "B134", "B135",
    "B137", "B138", "B140", "B141", "B143", "B144", "B146", "B147", "B149", "B150", "B152", "B153", "B155", "B156", "B158",
    "B159", "B161", "B162", "B164", "B165", "B167", "B168", "B170", "B171", "B173", "B174", "B176", "B177", "B179", "B180",
)  # fmt: skip

Test = tuple[str, str]

HELD_BY: dict[str, tuple[Test, ...]] = {
    "B002": (
        ("field/test_streaming.py", "test_b002_an_event_cut_over_two_reads_is_one_event_wherever_it_is_cut"),
    ),
    "B003": (("field/test_streaming.py", "test_b003_only_lf_and_cr_end_a_line"),),
    "B005": (("field/test_streaming.py", "test_b005_comments_of_an_engine_stay_comments"),),
    "B006": (("field/test_streaming.py", "test_b006_nothing_is_put_into_a_stream_while_it_is_silent"),),
    "B008": (
        (
            "field/test_streaming.py",
            "test_b008_a_last_event_without_its_blank_line_reaches_the_client_and_is_read",
        ),
    ),
    "B009": (("field/test_streaming.py", "test_b009_usage_comes_as_the_engine_sends_it"),),
    "B011": (("field/test_streaming.py", "test_b011_every_key_of_every_chunk_is_kept_null_or_not"),),
    "B012": (("field/test_streaming.py", "test_b012_chunks_of_a_vendors_fields_alone_pass"),),
    "B014": (
        (
            "field/test_streaming.py",
            "test_b014_a_client_that_takes_gzip_gets_each_event_when_it_is_sent_and_uncompressed",
        ),
    ),
    "B015": (
        (
            "field/test_streaming.py",
            "test_b015_a_stream_of_another_api_is_whole_only_where_its_engine_says_so",
        ),
        (FAILURES, "test_a_stream_cut_by_its_engine_reaches_the_client_as_an_error_event_and_a_broken_end"),
        (BREAKER, "test_a_backend_that_breaks_is_left_out_until_canaries_find_it_well"),
        ("system/test_clients.py", "test_a_cut_stream_raises_instead_of_ending_short"),
    ),
    "B017": ((DISCONNECTS, "test_a_client_that_leaves_a_plain_call_ends_it_on_every_route"),),
    "B018": (
        (DISCONNECTS, "test_a_client_that_leaves_in_the_middle_of_a_stream_ends_it"),
        (DISCONNECTS, "test_a_client_that_leaves_a_stream_too_large_for_all_buffers_ends_it"),
    ),
    "B020": (("field/test_aborts.py", "test_b020_a_stream_that_is_left_ends_on_every_route"),),
    "B021": (("field/test_aborts.py", "test_b021_nothing_that_can_be_switched_on_hides_a_clients_leaving"),),
    "B023": ((DISCONNECTS, "test_clients_that_do_not_read_are_cut_off_and_hold_little_memory"),),
    "B024": (
        ("field/test_aborts.py", "test_b024_who_closes_at_done_has_had_a_success_with_all_that_follows_once"),
    ),
    "B026": (
        (BYTES, "test_an_answers_body_and_status_reach_the_client_as_they_were_sent"),
        (BYTES, "test_a_stream_with_a_length_comes_in_chunks_since_it_may_get_shorter_or_end_with_an_error"),
    ),
    "B027": (("field/test_wire.py", "test_b027_a_compressed_answer_is_said_to_be_and_is"),),
    "B029": (
        (HEADERS, "test_hop_by_hop_headers_stop_here_and_so_do_those_named_in_connection"),
        (HEADERS, "test_a_client_that_expects_100_is_told_to_go_on_before_it_sends_its_body"),
    ),
    "B030": (
        (
            "field/test_wire.py",
            "test_b030_an_engines_wish_to_be_left_alone_reaches_the_client_which_obeys_it",
        ),
    ),
    "B032": ((HEADERS, "test_one_request_id_used_twice_at_once_mixes_nothing_up"),),
    "B033": (
        ("field/test_wire.py", "test_b033_a_browser_is_told_its_rights_without_a_key_and_on_every_refusal"),
    ),
    "B035": ((BYTES, "test_a_request_body_reaches_the_engine_as_it_was_sent"),),
    "B036": (("field/test_wire.py", "test_b036_no_key_that_the_client_did_not_send_reaches_an_engine"),),
    "B038": (("field/test_wire.py", "test_b038_what_only_the_engine_can_judge_reaches_it_unchanged"),),
    "B039": (
        (FRONT, "test_a_body_above_the_limit_gets_413_even_while_it_is_still_sent"),
        (FRONT, "test_an_endless_chunked_body_is_cut_off"),
        ("field/test_wire.py", "test_b039_a_body_above_the_limit_takes_no_more_memory_than_the_limit"),
    ),
    "B041": (
        (
            "field/test_wire.py",
            "test_b041_numbers_that_json_does_not_have_pass_and_usage_beside_them_is_counted",
        ),
    ),
    "B042": ((BYTES, "test_a_chunked_request_body_arrives_complete_and_with_one_framing"),),
    "B044": (
        (BYTES, "test_an_answers_body_and_status_reach_the_client_as_they_were_sent"),
        (FAILURES, "test_without_a_backend_the_refusal_is_there_at_once"),
    ),
    "B045": (
        (
            "field/test_wire.py",
            "test_b045_an_error_under_status_200_is_raised_by_the_client_and_is_no_success",
        ),
    ),
    "B047": (("field/test_wire.py", "test_b047_an_engines_refusal_keeps_its_status_its_type_and_its_body"),),
    "B048": (("field/test_wire.py", "test_b048_an_error_stays_an_error_where_a_name_is_rewritten"),),
    "B050": (
        (FAILURES, "test_a_stream_cut_by_its_engine_reaches_the_client_as_an_error_event_and_a_broken_end"),
        (
            "system/test_odd_clients.py",
            "test_what_was_sent_of_a_cut_stream_is_not_followed_by_another_engines_answer",
        ),
    ),
    "B051": (
        (FAILURES, "test_a_failure_before_the_first_byte_is_tried_on_another_backend_and_never_the_same"),
    ),
    "B053": (
        (
            "field/test_tries.py",
            "test_b053_a_full_engine_is_not_asked_again_and_the_client_is_told_when_to_come_back",
        ),
    ),
    "B054": (("field/test_tries.py", "test_b054_tries_of_client_and_gateway_do_not_multiply"),),
    "B057": ((DISCONNECTS, "test_a_client_that_repeats_a_cut_call_has_one_running_at_a_time"),),
    "B059": ((DISCONNECTS, "test_cancelling_with_a_full_pool_leaves_no_dead_connection_behind"),),
    "B060": (
        (FAILURES, "test_one_stuck_backend_does_not_hold_up_another_models_requests"),
        (FAILURES, "test_a_time_limit_before_the_first_byte_is_a_504_that_names_itself"),
    ),
    "B062": (("field/test_tries.py", "test_b062_six_hundred_streams_to_one_engine_run_at_once"),),
    "B063": (
        (
            "field/test_tries.py",
            "test_b063_a_client_keeps_its_connection_between_turns_for_longer_than_others_do",
        ),
    ),
    "B065": ((FAILURES, "test_a_steady_stream_outlives_its_gap_limit_many_times"),),
    "B068": (
        (FAILURES, "test_a_time_limit_inside_a_stream_is_an_error_event_before_the_close"),
        (FAILURES, "test_an_engine_that_stops_reading_the_request_is_given_up"),
        (BREAKER, "test_a_backend_that_breaks_is_left_out_until_canaries_find_it_well"),
    ),
    "B069": (
        (FAILURES, "test_a_time_limit_before_the_first_byte_is_a_504_that_names_itself"),
        (FAILURES, "test_a_time_limit_inside_a_stream_is_an_error_event_before_the_close"),
        (QUEUEING, "test_a_wait_that_takes_too_long_ends_with_504_and_gives_its_place_up"),
    ),
    "B071": (
        ("field/test_line.py", "test_b071_a_full_line_a_wait_too_long_and_an_empty_fleet_are_told_apart"),
    ),
    "B072": (
        (EMERGENCIES, "test_interactive_requests_pass_batch_ones_that_wait_but_do_not_shut_them_out"),
        (EMERGENCIES, "test_emergencies_beyond_their_budget_wait_as_interactive_ones"),
        ("routing/test_fair_shares.py", "test_the_groups_share_by_fairness_weight_and_batch_never_starves"),
    ),
    "B074": ((QUEUEING, "test_counts_stay_right_while_a_backend_goes_and_comes_back_under_running_streams"),),
    "B075": (
        (QUEUEING, "test_equal_backends_share_a_sequence_of_requests_evenly"),
        (QUEUEING, "test_equal_backends_share_sessions_that_come_back_about_evenly"),
        (QUEUEING, "test_the_backend_with_the_smallest_share_of_its_window_in_use_is_next"),
    ),
    "B077": (
        (
            "gateway/test_turnstile.py",
            "test_no_slot_is_lost_in_twenty_thousand_rounds_of_releases_and_cancellations",
        ),
        (QUEUEING, "test_the_line_goes_on_whatever_ended_the_one_in_front"),
    ),
    "B078": ((QUEUEING, "test_a_slot_is_held_to_the_last_byte_and_not_only_to_the_headers"),),
    "B080": (("field/test_line.py", "test_b080_no_name_that_a_client_gives_makes_its_request_fail"),),
    "B081": (("field/test_line.py", "test_b081_what_has_ended_in_whatever_way_is_no_load"),),
    "B083": (
        (
            "field/test_line.py",
            "test_b083_tenants_without_keys_have_their_shares_by_a_header_that_is_trusted",
        ),
        ("field/test_line.py", "test_b083_anonymous_clients_are_one_tenant_whatever_user_they_name"),
    ),
    "B084": (("field/test_tries.py", "test_b084_a_stream_that_is_left_gives_its_slot_to_the_next"),),
    "B089": (("field/test_sessions.py", "test_b089_an_answer_for_one_who_left_is_never_anothers"),),
    "B090": (
        ("field/test_sessions.py", "test_b090_more_requests_than_connections_to_redis_wait_and_none_fails"),
    ),
    "B092": (("field/test_sessions.py", "test_b092_callers_that_leave_strand_no_connection_to_redis"),),
    "B093": (("field/test_shared_servers.py", "test_b093_a_sentinels_connections_are_bounded"),),
    "B095": (
        (SHARED_SESSIONS, "test_a_redis_that_freezes_costs_affinity_and_no_request"),
        (
            "gateway/sessions/test_guarded_store.py",
            "test_it_is_found_again_by_probes_alone_within_two_seconds_of_its_return",
        ),
    ),
    "B096": (
        (
            "field/test_sessions.py",
            "test_b096_b128_a_redis_that_never_answers_holds_no_request_up_whatever_its_form",
        ),
    ),
    "B098": (("field/test_shared_servers.py", "test_b098_no_call_needs_keys_of_two_slots"),),
    "B099": (
        ("field/test_sessions.py", "test_b099_a_connection_that_was_forgotten_on_its_way_costs_no_request"),
    ),
    "B101": ((SHARED_SESSIONS, "test_fifty_turns_at_once_through_two_gateways_are_all_kept_in_one_order"),),
    "B102": (("field/test_sessions.py", "test_b102_a_ring_of_ten_never_holds_more"),),
    "B104": (
        (
            "field/test_routes.py",
            "test_b104_few_sessions_move_with_a_backend_that_comes_or_goes_and_none_at_a_restart",
        ),
    ),
    "B105": (
        (
            "field/test_routes.py",
            "test_b105_one_session_is_one_under_all_its_names_and_another_under_no_spelling",
        ),
        ("system/test_affinity.py", "test_a_session_stays_together_by_any_of_its_names"),
        (SHARED_SESSIONS, "test_a_session_stays_with_its_backend_through_another_gateway"),
    ),
    "B107": ((BREAKER, "test_a_clients_fault_and_a_full_engine_open_nothing"),),
    "B108": (
        (BREAKER, "test_clients_that_leave_open_nothing"),
        (DISCONNECTS, "test_fifty_aborts_say_nothing_about_the_backend"),
    ),
    "B110": (
        (
            "field/test_health.py",
            "test_b110_a_call_that_gives_way_to_an_emergency_says_nothing_about_its_engine",
        ),
        (
            "field/test_health.py",
            "test_b110_an_answer_that_is_ended_for_its_length_in_time_says_nothing_about_its_engine",
        ),
        (
            "field/test_health.py",
            "test_b110_an_answer_that_its_client_does_not_read_says_nothing_about_its_engine",
        ),
        (
            "field/test_health.py",
            "test_b110_calls_that_are_ended_by_a_shutdown_say_nothing_about_their_engine",
        ),
    ),
    "B111": (
        (BREAKER, "test_a_backend_that_refuses_connections_is_left_out_and_comes_back"),
        (FAILURES, "test_a_backend_that_returns_is_used_again_after_a_probe"),
    ),
    "B113": ((BREAKER, "test_a_backend_that_breaks_is_left_out_until_canaries_find_it_well"),),
    "B114": (
        (FAILURES, "test_one_late_health_answer_does_not_take_a_backend_out_but_the_third_in_a_row_does"),
    ),
    "B116": (
        ("field/test_health.py", "test_b116_looking_at_health_asks_engines_for_nothing_but_cheap_gets"),
    ),
    "B117": (
        (
            "field/test_health.py",
            "test_b117_where_every_call_fails_and_probes_are_well_readiness_turns_red_and_comes_back",
        ),
        (
            "field/test_health.py",
            "test_b117_engines_that_are_silently_gone_turn_readiness_red_and_not_liveness",
        ),
    ),
    "B122": (
        (METRICS, "test_no_client_can_choose_a_label_however_many_paths_models_and_methods_it_invents"),
        ("field/test_labels.py", "test_b122_a_scan_of_random_paths_methods_and_queries_adds_no_series"),
    ),
    "B123": (
        (METRICS, "test_no_client_can_choose_a_label_however_many_paths_models_and_methods_it_invents"),
        ("field/test_labels.py", "test_b123_names_that_clients_invent_add_no_series"),
    ),
    "B125": (
        ("field/test_reload.py", "test_b125_nothing_of_an_old_configuration_runs_on_beside_the_new_one"),
    ),
    "B126": (("field/test_reload.py", "test_b126_no_bad_file_takes_a_running_gateway_down"),),
    "B128": (
        (
            "field/test_sessions.py",
            "test_b096_b128_a_redis_that_never_answers_holds_no_request_up_whatever_its_form",
        ),
    ),
    "B129": (("field/test_reload.py", "test_b129_each_request_is_served_by_one_configuration_whole"),),
    "B131": (
        (LIFECYCLE, "test_a_running_stream_ends_well_after_sigterm_while_new_work_is_turned_away"),
        (LIFECYCLE, "test_what_remains_after_drain_seconds_gets_an_error_event_or_a_503"),
        (
            "field/test_lifecycle.py",
            "test_b131_ten_streams_and_five_plain_calls_end_whole_inside_the_grace_or_are_told",
        ),
    ),
    "B132": (
        ("field/test_ends.py", "test_b132_a_gateway_that_leaves_serves_until_its_load_balancer_has_noticed"),
    ),
    "B134": (("field/test_ends.py", "test_b134_a_connection_that_is_kept_ends_with_an_answer_that_says_so"),),
    "B135": (
        (LIFECYCLE, "test_what_remains_after_drain_seconds_gets_an_error_event_or_a_503"),
        (
            "field/test_lifecycle.py",
            "test_b135_whoever_still_waits_at_the_end_is_told_so_and_reaches_no_engine",
        ),
    ),
    "B137": (
        ("field/test_sessions.py", "test_b137_a_redis_that_is_frozen_does_not_hold_up_the_end"),
        (
            "field/test_lifecycle.py",
            "test_b137_a_receiver_and_a_redis_that_hang_do_not_hold_up_the_end_and_the_log_is_whole",
        ),
    ),
    "B140": (
        ("field/test_routes.py", "test_b140_a_key_of_the_gateway_leaves_it_nowhere_it_may_be_sent"),
        (
            "field/test_security.py",
            "test_b140_a_key_of_the_gateway_reaches_no_engine_from_any_place_on_any_route",
        ),
    ),
    "B141": (
        (KEYS, "test_an_engine_gets_its_own_key_in_place_of_the_gateways_also_at_a_second_try"),
        ("field/test_security.py", "test_b141_a_second_backend_gets_nothing_that_was_meant_for_the_first"),
    ),
    "B143": (
        (FRONT, "test_an_oversized_head_is_refused_with_431"),
        (FRONT, "test_a_long_target_is_refused_with_414_and_a_16_kib_one_passes"),
        ("field/test_security.py", "test_b143_huge_and_countless_headers_are_refused_and_cost_no_memory"),
    ),
    "B144": (
        (LIFECYCLE, "test_each_request_is_one_json_line_and_no_key_is_in_any_log"),
        (HEADERS, "test_a_request_id_is_kept_if_it_is_fit_and_made_if_it_is_not"),
        (FRONT, "test_malformed_http_is_refused_with_400_and_the_connection_closed"),
        ("field/test_security.py", "test_b144_no_value_of_a_client_can_forge_or_split_a_line_of_a_log"),
    ),
    "B146": (
        (HEADERS, "test_a_request_id_is_kept_if_it_is_fit_and_made_if_it_is_not"),
        ("field/test_security.py", "test_b146_a_huge_request_id_makes_no_larger_stream_than_a_short_one"),
    ),
    "B147": (
        (
            "field/test_line.py",
            "test_b147_a_client_that_names_itself_anew_each_time_stays_one_flow_in_its_own_lane",
        ),
        (TAGS, "test_a_lane_is_asked_for_and_clamped_to_what_the_tenant_may_use"),
        ("gateway/test_tenants.py", "test_who_names_nobody_new_or_is_not_trusted_stays_itself"),
        (EMERGENCIES, "test_without_anybody_who_may_use_it_there_is_no_reserve"),
        ("field/test_security.py", "test_b147_a_client_cannot_name_itself_urgent_or_somebody_else"),
        ("field/test_security.py", "test_b147_a_thousand_invented_tenants_of_one_key_are_one_flow"),
    ),
    "B149": (
        ("field/test_counting.py", "test_b149_a_long_prompt_is_counted_in_no_time_that_others_would_notice"),
        (
            "field/test_token_counting.py",
            "test_b149_a_large_prompt_keeps_the_loop_no_longer_than_a_stream_may_wait",
        ),
    ),
    "B150": (
        ("field/test_counting.py", "test_b150_the_gateway_starts_and_serves_without_asking_anybody_on_a_net"),
        (
            "field/test_token_counting.py",
            "test_b150_nothing_but_the_backend_is_asked_at_the_start_and_at_the_first_request",
        ),
    ),
    "B152": (
        ("field/test_counting.py", "test_b152_what_is_inside_of_an_image_a_sound_or_a_file_is_no_text"),
        ("field/test_token_counting.py", "test_b152_media_are_counted_by_their_size_and_not_as_text"),
    ),
    "B153": (
        ("field/test_counting.py", "test_b153_no_content_makes_counting_fail"),
        ("field/test_token_counting.py", "test_b153_a_content_of_any_shape_is_counted_as_far_as_it_is_known"),
    ),
    "B155": (
        ("field/test_counting.py", "test_b155_prompts_of_any_length_are_told_their_type_and_answered"),
        ("field/test_token_counting.py", "test_b155_a_prompt_of_any_length_is_classified_or_a_default_one"),
    ),
    "B156": (
        ("field/test_counting.py", "test_b156_calls_that_come_interleaved_stay_apart"),
        ("field/test_tool_calls.py", "test_b156_three_parallel_calls_keep_their_indexes_and_their_arguments"),
    ),
    "B158": (
        ("field/test_counting.py", "test_b158_pieces_without_an_id_come_when_they_are_sent"),
        ("field/test_tool_calls.py", "test_b158_pieces_of_arguments_without_an_id_pass_as_they_come"),
    ),
    "B159": (
        ("field/test_counting.py", "test_b159_events_of_odd_shapes_pass_and_upset_nobody"),
        ("field/test_tool_calls.py", "test_b159_an_odd_event_at_any_place_passes_and_nothing_is_logged"),
    ),
    "B161": (
        (
            "field/test_routes.py",
            "test_b161_each_name_that_can_be_called_is_listed_once_and_each_that_is_listed_can_be_called",
        ),
        (
            "field/test_models_list.py",
            "test_b161_the_list_holds_each_name_that_can_be_called_and_holds_it_once",
        ),
    ),
    "B162": (("system/test_models.py", "test_an_alias_is_replaced_on_every_route_and_not_a_byte_beside_it"),),
    "B164": (
        ("field/test_routes.py", "test_b164_the_form_of_an_embedding_is_the_clients_and_the_engines_matter"),
        (
            "field/test_endpoints.py",
            "test_b164_the_encoding_format_reaches_the_engine_as_sent_and_its_vectors_come_back",
        ),
        ("field/test_endpoints.py", "test_b164_an_absent_encoding_format_stays_absent"),
    ),
    "B165": (
        (BYTES, "test_25_mb_of_audio_arrive_whole_with_every_form_field"),
        ("field/test_endpoints.py", "test_b165_audio_arrives_whole_and_soon_with_the_model_behind_it"),
    ),
    "B167": (
        (BYTES, "test_25_mb_of_audio_arrive_whole_with_every_form_field"),
        (BYTES, "test_an_answers_head_and_first_event_do_not_wait_for_what_follows"),
        (
            "field/test_endpoints.py",
            "test_b167_every_field_of_a_form_is_forwarded_and_its_events_come_one_by_one",
        ),
    ),
    "B168": (
        (PATHS, "test_every_client_path_of_an_engine_passes"),
        (PATHS, "test_no_control_path_exists"),
        (
            "field/test_endpoints.py",
            "test_b168_every_route_that_an_engine_lists_below_v1_is_forwarded_or_known_as_not",
        ),
    ),
    "B170": (
        ("field/test_routes.py", "test_b170_an_engines_own_forms_reach_it_unchanged"),
        ("field/test_endpoints.py", "test_b170_forms_without_an_input_pass_unchanged"),
    ),
    "B171": (
        (TABLE, "test_a_million_prefixes_leave_no_more_than_a_thousand"),
        (TABLE, "test_it_never_holds_more_than_it_may"),
        (TABLE, "test_a_prefix_takes_no_more_than_is_said_when_it_has_all_the_homes_it_may_have"),
        (
            "field/test_memory_leak.py",
            "test_b171_prefixes_and_sessions_have_one_bound_however_many_prompts_and_backends",
        ),
    ),
    "B173": (
        ("field/test_routes.py", "test_b173_no_feature_opens_something_for_each_call"),
        ("field/test_memory_leak.py", "test_b173_no_feature_makes_a_client_or_a_tls_context_for_each_call"),
    ),
    "B174": (
        (SHARED_SESSIONS, "test_a_redis_that_freezes_costs_affinity_and_no_request"),
        (QUEUEING, "test_beyond_the_line_a_request_is_refused_at_once"),
        (
            "gateway/sessions/test_write_behind.py",
            "test_bytes_are_bounded_as_well_and_counted_down_to_nothing",
        ),
        (
            "field/test_memory_leak.py",
            "test_b174_behind_a_stalled_backend_no_more_are_taken_than_may_run_and_wait",
        ),
        (
            "field/test_memory_leak.py",
            "test_b174_behind_a_stalled_backend_no_more_bytes_of_bodies_are_taken_than_there_is_room_for",
        ),
        (
            "field/test_memory_leak.py",
            "test_b174_with_a_frozen_redis_requests_are_answered_early_and_do_not_pile_up",
        ),
    ),
    "B179": (("field/test_multi_worker.py", "test_b179_every_scrape_sees_one_sum_that_never_falls"),),
    "B180": (
        (
            "field/test_multi_worker.py",
            "test_b180_each_gateway_probes_once_an_interval_whatever_its_clients_do",
        ),
    ),
}

ONE_PROCESS = "a gateway is one process without workers; several share nothing but sessions in a Redis, which the README says"

OTHERWISE: dict[str, str] = {
    "B071": "429 is a client that had its share; a fleet that is short is 503 (queue full) or 504 (waited too long), whether busy or gone, and the reason tells these apart",
    "B126": "a host that does not resolve is taken over and skipped as one that refuses connections is: names of engines that are still to start are usual; a port is never moved by a reload",
    "B165": "the model may stand behind the file, so the whole form is there before it is known where it goes: at most as it came, in one piece, and on its way out",
}
NOT_HERE: dict[str, str] = {
    "B056": "no issue asks for a wish of a single request not to be tried again; `retries.max_retries: 0` is for all, and what stores something is never sent twice",
    "B066": "no issue asks for keep-alive bytes; the head of a stream leaves when the engine sends its own, and while a request waits nothing does, which the README says",
    "B086": "no issue asks for a limit of requests per minute of a tenant; what a rule limits is one count for the whole fleet, in this process",
    "B087": "no issue asks for a limit of tokens per minute of a tenant; shares of tenants are counted in tokens",
    "B119": "a gateway is one process without workers; several share nothing but sessions in a Redis, which the README says",
    "B120": "a gateway is one process without workers; several share nothing but sessions in a Redis, which the README says",
    "B138": "a gateway is one process without workers; several share nothing but sessions in a Redis, which the README says",
    "B176": "a gateway is one process without workers; several share nothing but sessions in a Redis, which the README says",
    "B177": "a gateway is one process without workers; several share nothing but sessions in a Redis, which the README says",
}
