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
CORE = "gateway/test_core_settings.py"
POOLS = "gateway/test_pool_settings.py"
TAGGING = "gateway/test_tagging_settings.py"
AFFINITY = "gateway/test_affinity_settings.py"
CLASSIFIER = "gateway/test_classifier_settings.py"
HISTORY = "gateway/sessions/test_history.py"
SESSION_SETTINGS = "gateway/sessions/test_session_settings.py"

ADMIN = "system/test_admin.py"

HELD_BY = {
    "AdminSettings.host": (
        ADMIN,
        "test_a_listener_of_their_own_serves_these_pages_and_the_clients_one_does_not",
    ),
    "AdminSettings.port": (
        ADMIN,
        "test_a_listener_of_their_own_serves_these_pages_and_the_clients_one_does_not",
    ),
    "AdminSettings.key_sha256": (ADMIN, "test_with_a_key_every_one_of_these_pages_needs_it"),
    "SessionSettings.redis_url": (SESSION_SETTINGS, "test_redis_url_is_where_sessions_are_kept"),
    "SessionSettings.redis_ca_file": (
        SESSION_SETTINGS,
        "test_redis_ca_file_is_what_a_certificate_is_held_to",
    ),
    "SessionSettings.sentinel_password": (SESSION_SETTINGS, "test_sentinel_password_opens_the_sentinels"),
    "SessionSettings.min_ttl_seconds": (SESSION_SETTINGS, "test_min_ttl_seconds_is_how_long_at_least"),
    "SessionSettings.max_ttl_seconds": (SESSION_SETTINGS, "test_max_ttl_seconds_is_how_long_at_most"),
    "SessionSettings.max_turns": (SESSION_SETTINGS, "test_max_turns_is_how_many_stay"),
    "SessionSettings.max_tokens": (SESSION_SETTINGS, "test_max_tokens_is_how_many_stay"),
    "SessionSettings.max_session_kb": (SESSION_SETTINGS, "test_max_session_kb_is_how_much_of_one_stays"),
    "SessionSettings.max_sessions": (SESSION_SETTINGS, "test_max_sessions_is_how_many_are_kept_in_memory"),
    "SessionSettings.max_memory_mb": (SESSION_SETTINGS, "test_max_memory_mb_is_how_much_is_kept_in_memory"),
    "SessionSettings.fresh_seconds": (SESSION_SETTINGS, "test_fresh_seconds_is_how_long_nobody_asks"),
    "SessionSettings.max_queued_writes": (SESSION_SETTINGS, "test_max_queued_writes_is_how_many_wait"),
    "SessionSettings.encryption_keys": (SESSION_SETTINGS, "test_encryption_keys_seal_what_was_said"),
    "SessionSettings.history": (HISTORY, "test_history_that_is_off_is_refused_as_such"),
    "SessionSettings.history_required": (
        HISTORY,
        "test_a_store_that_is_away_is_a_503_or_an_answer_without_history_as_configured",
    ),
    "SessionSettings.conflicts": (
        HISTORY,
        "test_of_two_turns_at_once_both_are_kept_as_they_arrive_or_the_second_is_refused",
    ),
    "SessionSettings.replay_cut": (
        HISTORY,
        "test_a_stream_that_broke_off_is_kept_as_cut_and_one_that_failed_at_once_is_not",
    ),
    "SessionSettings.max_entry_kb": (HISTORY, "test_a_turn_above_max_entry_kb_is_answered_and_not_kept"),
    "SessionSettings.timeout_ms": (
        HISTORY,
        "test_a_turn_that_is_still_to_be_written_is_waited_for_within_the_stores_time",
    ),
    "ServerSettings.host": (SETTINGS, "test_host_and_port_are_where_it_listens"),
    "ServerSettings.port": (SETTINGS, "test_host_and_port_are_where_it_listens"),
    "ServerSettings.max_body_mb": (FRONT, "test_a_body_above_the_limit_gets_413_even_while_it_is_still_sent"),
    "ServerSettings.max_bodies_mb": (
        "field/test_memory_leak.py",
        "test_b174_behind_a_stalled_backend_no_more_bytes_of_bodies_are_taken_than_there_is_room_for",
    ),
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
    "ServerSettings.leave_seconds": (
        "field/test_ends.py",
        "test_b132_a_gateway_that_leaves_serves_until_its_load_balancer_has_noticed",
    ),
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
    "QueueSettings.max_waiting_per_flow": (
        CORE,
        "test_max_waiting_per_flow_bounds_one_flow_and_leaves_room_to_the_others",
    ),
    "QueueSettings.fairness_weight": (
        CORE,
        "test_fairness_weight_is_the_share_of_interactive_requests_whatever_their_lanes_weight",
    ),
    "EmergencySettings.reserved_per_pool": (CORE, "test_reserved_per_pool_is_kept_free_for_emergencies"),
    "EmergencySettings.lending_share": (CORE, "test_lending_share_of_the_reserve_is_lent_to_short_requests"),
    "EmergencySettings.budget_share": (
        CORE,
        "test_budget_share_of_what_the_fleet_serves_is_what_emergencies_may_use_over_time",
    ),
    "EmergencySettings.burst": (
        CORE,
        "test_burst_is_how_many_emergencies_may_come_at_once_and_the_rest_count_as_interactive",
    ),
    "EmergencySettings.preemption": (
        CORE,
        "test_preemption_lets_a_running_batch_request_give_way_to_an_emergency",
    ),
    "EmergencySettings.max_wait_seconds": (
        CORE,
        "test_max_wait_seconds_of_a_lane_bound_its_own_requests_alone",
    ),
    "InteractiveLaneSettings.weight": (
        CORE,
        "test_lanes_that_compete_are_served_in_proportion_to_their_weights",
    ),
    "InteractiveLaneSettings.max_wait_seconds": (
        CORE,
        "test_max_wait_seconds_of_a_lane_bound_its_own_requests_alone",
    ),
    "LaneSettings.weight": (CORE, "test_lanes_that_compete_are_served_in_proportion_to_their_weights"),
    "LaneSettings.max_wait_seconds": (CORE, "test_max_wait_seconds_of_a_lane_bound_its_own_requests_alone"),
    "BatchLaneSettings.weight": (CORE, "test_lanes_that_compete_are_served_in_proportion_to_their_weights"),
    "BatchLaneSettings.max_wait_seconds": (
        CORE,
        "test_max_wait_seconds_of_a_lane_bound_its_own_requests_alone",
    ),
    "LengthSettings.short_below": (CORE, "test_short_below_and_long_above_part_the_prompts"),
    "LengthSettings.long_above": (CORE, "test_short_below_and_long_above_part_the_prompts"),
    "PlacementSettings.spill": (POOLS, "test_a_request_leaves_a_full_pool_only_where_spill_is_on"),
    "PlacementSettings.spill_ratio": (
        POOLS,
        "test_spill_ratio_is_the_share_of_the_preferred_pools_time_within_which_another_one_is_taken",
    ),
    "PlacementSettings.hysteresis_seconds": (
        POOLS,
        "test_hysteresis_seconds_are_how_long_a_flow_that_spilled_stays",
    ),
    "SheddingSettings.enabled": (
        CORE,
        "test_a_wait_beyond_margin_times_the_time_that_is_left_is_refused_at_once_where_shedding_is_enabled",
    ),
    "SheddingSettings.margin": (
        CORE,
        "test_a_wait_beyond_margin_times_the_time_that_is_left_is_refused_at_once_where_shedding_is_enabled",
    ),
    "SheddingSettings.standing_share": (
        CORE,
        "test_a_queue_stands_after_standing_seconds_in_which_nobody_waited_less_than_standing_share_of_the_target",
    ),
    "SheddingSettings.standing_seconds": (
        CORE,
        "test_a_queue_stands_after_standing_seconds_in_which_nobody_waited_less_than_standing_share_of_the_target",
    ),
    "AffinitySettings.enabled": (
        AFFINITY,
        "test_enabled_looks_into_prompts_and_sends_equal_beginnings_to_one_backend",
    ),
    "AffinitySettings.max_prefixes": (AFFINITY, "test_max_prefixes_is_how_many_are_remembered"),
    "AffinitySettings.load_bound": (
        AFFINITY,
        "test_load_bound_times_its_share_is_what_a_backend_gets_for_its_cache",
    ),
    "AffinitySettings.min_ttl_seconds": (
        AFFINITY,
        "test_min_ttl_seconds_is_how_long_a_prefix_is_remembered_at_least",
    ),
    "AffinitySettings.max_ttl_seconds": (AFFINITY, "test_max_ttl_seconds_is_how_long_at_most"),
    "PathSettings.reuse_cache_min_hits": (AFFINITY, "test_reuse_cache_min_hits_make_a_prefix_hot"),
    "PathSettings.window_seconds": (AFFINITY, "test_window_seconds_is_how_long_a_hit_counts"),
    "PathSettings.hot_cache_preallocation": (
        AFFINITY,
        "test_hot_cache_preallocation_is_the_share_of_hot_requests_while_both_wait",
    ),
    "PathSettings.cache_low_freq_ratio": (
        AFFINITY,
        "test_cache_low_freq_ratio_is_the_share_of_cold_ones",
    ),
    "PathSettings.follow_traffic": (
        AFFINITY,
        "test_follow_traffic_moves_the_shares_with_what_arrives",
    ),
    "PathSettings.cold_open": (AFFINITY, "test_cold_open_false_refuses_cold_requests"),
    "RetrySettings.max_retries": (FAILURES, "test_attempts_are_bound_by_the_setting_and_by_the_backends"),
    "RetrySettings.budget_share": (
        CORE,
        "test_second_tries_are_bound_by_the_greater_of_budget_share_and_budget_floor",
    ),
    "RetrySettings.budget_floor": (
        CORE,
        "test_second_tries_are_bound_by_the_greater_of_budget_share_and_budget_floor",
    ),
    "LogSettings.requests": (SETTINGS, "test_the_request_log_can_be_switched_off"),
    "BackendSettings.url": (SETTINGS, "test_names_and_urls_of_pools_and_backends_say_where_a_request_went"),
    "BackendSettings.name": (SETTINGS, "test_names_and_urls_of_pools_and_backends_say_where_a_request_went"),
    "BackendSettings.api_key": (
        "system/test_headers.py",
        "test_a_backends_own_key_takes_the_place_of_the_clients",
    ),
    "BackendSettings.ca_file": (SETTINGS, "test_ca_file_verifies_requests_and_probes"),
    "WindowSettings.max": (SETTINGS, "test_max_waiting_bounds_the_queue"),
    "WindowSettings.min": (POOLS, "test_min_is_how_far_a_window_moves_down_and_without_it_it_does_not_move"),
    "WindowSettings.start": (
        POOLS,
        "test_a_window_that_moves_begins_at_start_or_in_the_middle_and_any_other_is_max",
    ),
    "WindowSettings.max_tokens": (
        POOLS,
        "test_max_tokens_bound_what_runs_on_a_backend_and_in_an_automatic_window_what_its_engine_says",
    ),
    "WindowSettings.max_prefill_tokens": (
        POOLS,
        "test_max_prefill_tokens_bound_the_prompts_whose_answer_has_not_begun",
    ),
    "WindowSettings.prefill_seconds": (
        POOLS,
        "test_prefill_seconds_of_what_an_engine_prefills_are_sent_to_it_in_an_automatic_window",
    ),
    "BatchingSettings.min": (POOLS, "test_min_of_a_batch_is_how_many_are_waited_for"),
    "BatchingSettings.max": (POOLS, "test_max_of_a_batch_is_how_many_go_to_one_backend_together"),
    "BatchingSettings.gather_ms": (POOLS, "test_gather_ms_are_the_longest_wait_for_a_batch"),
    "BatchingSettings.dynamic_scaling": (
        POOLS,
        "test_with_dynamic_scaling_nobody_waits_for_more_than_are_to_be_expected",
    ),
    "PromptTokensSettings.min": (POOLS, "test_prompt_tokens_say_which_prompts_a_pool_takes"),
    "PromptTokensSettings.max": (POOLS, "test_prompt_tokens_say_which_prompts_a_pool_takes"),
    "PoolSettings.name": (SETTINGS, "test_names_and_urls_of_pools_and_backends_say_where_a_request_went"),
    "PoolSettings.role": (
        POOLS,
        "test_interactive_requests_go_to_the_pool_of_the_role_low_latency_and_the_others_elsewhere",
    ),
    "PoolSettings.engine_priority": (POOLS, "test_engine_priority_writes_the_lane_into_the_body"),
    "MatchSettings.keywords": (TAGGING, "test_each_kind_of_match_makes_a_request_one_of_its_business_type"),
    "MatchSettings.regex": (TAGGING, "test_each_kind_of_match_makes_a_request_one_of_its_business_type"),
    "MatchSettings.system_prompts": (
        TAGGING,
        "test_each_kind_of_match_makes_a_request_one_of_its_business_type",
    ),
    "MatchSettings.system_prompt_sha256": (
        TAGGING,
        "test_each_kind_of_match_makes_a_request_one_of_its_business_type",
    ),
    "MatchSettings.models": (TAGGING, "test_each_kind_of_match_makes_a_request_one_of_its_business_type"),
    "MatchSettings.paths": (TAGGING, "test_each_kind_of_match_makes_a_request_one_of_its_business_type"),
    "MatchSettings.tenants": (TAGGING, "test_each_kind_of_match_makes_a_request_one_of_its_business_type"),
    "BusinessTypeSettings.name": (
        TAGGING,
        "test_the_name_of_a_business_type_is_what_a_request_is_known_by_and_a_trusted_client_asks_for",
    ),
    "BusinessTypeSettings.latency_target_ms": (
        TAGGING,
        "test_latency_target_ms_is_when_the_core_gives_a_request_up",
    ),
    "BusinessTypeSettings.lane": (
        TAGGING,
        "test_the_lane_of_a_business_type_is_its_requests_and_without_one_it_is_the_tenants",
    ),
    "BusinessTypeSettings.pools": (
        TAGGING,
        "test_the_pools_of_a_business_type_are_used_in_their_order_and_no_other",
    ),
    "BusinessTypeSettings.max_output_tokens": (
        TAGGING,
        "test_max_output_tokens_are_reckoned_with_where_a_request_names_no_limit",
    ),
    "ClassifierSettings.file": (
        CLASSIFIER,
        "test_a_classifiers_file_tells_the_type_of_a_text_that_nothing_else_tells",
    ),
    "ClassifierSettings.min_confidence": (
        CLASSIFIER,
        "test_below_min_confidence_a_request_is_a_default_one",
    ),
    "ClassifierSettings.agreement_sample": (
        CLASSIFIER,
        "test_agreement_sample_of_the_requests_that_a_header_names_is_compared",
    ),
    "TenantSettings.name": (TAGGING, "test_the_name_of_a_tenant_is_whose_share_its_requests_use"),
    "TenantSettings.key_sha256": (
        TAGGING,
        "test_key_sha256_says_which_keys_are_a_tenants_and_any_other_is_refused",
    ),
    "TenantSettings.weight": (TAGGING, "test_tenants_and_anonymous_clients_share_a_lane_by_their_weights"),
    "TenantSettings.max_lane": (
        TAGGING,
        "test_max_lane_is_the_most_urgent_lane_that_a_tenant_or_an_anonymous_client_gets",
    ),
    "TenantSettings.default_lane": (TAGGING, "test_default_lane_is_that_of_requests_that_name_none"),
    "TenantSettings.trust_headers": (
        TAGGING,
        "test_what_a_client_claims_counts_only_where_trust_headers_is_on",
    ),
    "TenantSettings.business_type": (
        TAGGING,
        "test_the_business_type_of_a_tenant_is_that_of_all_its_requests",
    ),
    "AnonymousSettings.allow": (TAGGING, "test_clients_without_a_key_may_call_where_anonymous_is_allowed"),
    "AnonymousSettings.weight": (TAGGING, "test_tenants_and_anonymous_clients_share_a_lane_by_their_weights"),
    "AnonymousSettings.max_lane": (
        TAGGING,
        "test_max_lane_is_the_most_urgent_lane_that_a_tenant_or_an_anonymous_client_gets",
    ),
    "AnonymousSettings.trust_headers": (
        TAGGING,
        "test_what_a_client_claims_counts_only_where_trust_headers_is_on",
    ),
    "Settings.aliases": (
        "system/test_models.py",
        "test_an_alias_is_replaced_on_every_route_and_not_a_byte_beside_it",
    ),
    "AlertReceiverSettings.url": (
        "system/test_alerts.py",
        "test_a_rule_that_takes_hold_and_lets_go_is_told_to_a_webhook_in_that_order",
    ),
    "AlertReceiverSettings.form": (
        "gateway/test_alerts.py",
        "test_an_alertmanager_gets_a_list_of_alerts_at_its_path_that_end_when_the_rule_lets_go",
    ),
    "AlertReceiverSettings.bearer_token": (
        "gateway/test_alerts.py",
        "test_bearer_token_is_what_a_receiver_knows_the_gateway_by",
    ),
    "AlertReceiverSettings.min_severity": (
        "gateway/test_alerts.py",
        "test_min_severity_keeps_from_a_receiver_what_is_less",
    ),
    "AlertReceiverSettings.timeout_seconds": (
        "gateway/test_alerts.py",
        "test_a_call_is_given_up_after_timeout_seconds_however_slowly_it_goes_on",
    ),
    "AlertReceiverSettings.repeat_seconds": (
        "gateway/test_alerts.py",
        "test_an_alertmanager_is_told_again_of_what_holds_every_repeat_seconds_and_others_are_not",
    ),
    "AlertSettings.max_waiting": (
        "gateway/test_alerts.py",
        "test_max_waiting_bounds_what_waits_and_what_is_given_up_is_counted",
    ),
    "AlertSettings.runbook_base_url": (
        "gateway/test_alerts.py",
        "test_runbook_base_url_stands_in_front_of_a_runbook_that_is_no_url",
    ),
    "AlertSettings.labels": (
        "gateway/test_alerts.py",
        "test_a_receiver_of_plain_json_hears_at_once_that_a_rule_holds_and_then_that_it_let_go",
    ),
    "DegradationSettings.standby_webhook": (
        "system/test_alerts.py",
        "test_the_standby_webhook_is_told_by_the_rule_that_wants_standby_backends",
    ),
    "GpuSettings.url": ("system/test_gpus.py", "test_a_backends_gpus_are_read_where_its_gpu_says_and_shown"),
    "GpuSettings.stale_seconds": (
        "system/test_gpus.py",
        "test_what_is_older_than_stale_seconds_is_absent_and_its_age_is_shown_all_the_same",
    ),
    "GpuSettings.labels": ("gateway/test_gpu_report.py", "test_labels_choose_the_gpus_that_are_the_backends"),
    "GpuSettings.temperature": (
        "gateway/test_gpu_report.py",
        "test_any_other_page_is_read_by_the_names_that_are_configured",
    ),
    "GpuSettings.memory_used": (
        "gateway/test_gpu_report.py",
        "test_any_other_page_is_read_by_the_names_that_are_configured",
    ),
    "GpuSettings.memory_total": (
        "gateway/test_gpu_report.py",
        "test_any_other_page_is_read_by_the_names_that_are_configured",
    ),
    "GpuSettings.utilisation": (
        "gateway/test_gpu_report.py",
        "test_any_other_page_is_read_by_the_names_that_are_configured",
    ),
    "GpuSettings.interval_seconds": (
        "gateway/test_gpu_rounds.py",
        "test_interval_seconds_lie_between_two_readings",
    ),
    "GpuSettings.timeout_seconds": (
        "gateway/test_gpu_rounds.py",
        "test_timeout_seconds_are_how_long_a_silent_exporter_is_waited_for",
    ),
    "BackendSettings.gpus": (
        "gateway/test_monitoring_metrics.py",
        "test_gpus_are_counted_as_they_are_configured",
    ),
    "BackendSettings.price_per_hour": (
        "gateway/test_monitoring_metrics.py",
        "test_what_tokens_cost_is_what_the_backends_of_their_pool_cost_meanwhile",
    ),
    "MonitoringSettings.primary_seconds": (
        "gateway/test_monitoring_metrics.py",
        "test_each_span_is_a_setting_of_its_own",
    ),
    "MonitoringSettings.business_seconds": (
        "gateway/test_monitoring_metrics.py",
        "test_each_span_is_a_setting_of_its_own",
    ),
    "MonitoringSettings.cost_seconds": (
        "gateway/test_monitoring_metrics.py",
        "test_each_span_is_a_setting_of_its_own",
    ),
    "BreakerSettings.enabled": (
        "gateway/test_breaker_settings.py",
        "test_enabled_is_whether_anybody_is_judged",
    ),
    "BreakerSettings.fast_seconds": (
        "gateway/test_breaker_settings.py",
        "test_fast_seconds_is_how_long_failures_count",
    ),
    "BreakerSettings.min_calls": (
        "gateway/test_breaker_settings.py",
        "test_from_min_calls_on_the_share_of_failures_counts",
    ),
    "BreakerSettings.failed_share": (
        "gateway/test_breaker_settings.py",
        "test_failed_share_of_the_calls_have_to_fail",
    ),
    "BreakerSettings.failures_in_a_row": (
        "gateway/test_breaker_settings.py",
        "test_failures_in_a_row_suffice_at_any_rate",
    ),
    "BreakerSettings.slow_seconds": (
        "gateway/test_breaker_settings.py",
        "test_slow_seconds_is_how_long_slow_calls_count",
    ),
    "BreakerSettings.slow_min_calls": (
        "gateway/test_breaker_settings.py",
        "test_from_slow_min_calls_on_the_share_of_slow_ones_counts",
    ),
    "BreakerSettings.slow_share": (
        "gateway/test_breaker_settings.py",
        "test_slow_share_of_the_calls_have_to_be_slow",
    ),
    "BreakerSettings.slow_factor": (
        "gateway/test_breaker_settings.py",
        "test_slow_factor_times_what_the_others_take_is_slow",
    ),
    "BreakerSettings.open_seconds": (
        "gateway/test_breaker_settings.py",
        "test_open_seconds_are_until_the_first_probe_and_max_open_seconds_until_any",
    ),
    "BreakerSettings.max_open_seconds": (
        "gateway/test_breaker_settings.py",
        "test_open_seconds_are_until_the_first_probe_and_max_open_seconds_until_any",
    ),
    "BreakerSettings.slow_start_seconds": (
        "gateway/test_breaker_settings.py",
        "test_within_slow_start_seconds_a_backend_has_its_whole_window_again",
    ),
    "BreakerSettings.panic_share": (
        "gateway/test_breaker_settings.py",
        "test_no_more_than_panic_share_of_a_pool_is_out",
    ),
    "BreakerSettings.outlier_factor": (
        "gateway/test_breaker_settings.py",
        "test_who_is_outlier_factor_times_slower_than_the_median_gets_less",
    ),
    "BreakerSettings.canary_timeout_seconds": (
        "gateway/test_canary.py",
        "test_within_canary_timeout_seconds_the_answer_has_to_be_whole",
    ),
    "RuleSettings.name": (
        "gateway/test_degradation_settings.py",
        "test_name_is_what_a_rule_is_known_by_and_one_of_a_default_rule_takes_its_place",
    ),
    "RuleSettings.metric": ("gateway/test_degradation_settings.py", "test_metric_is_what_is_looked_at"),
    "RuleSettings.scope": ("gateway/test_degradation_settings.py", "test_scope_is_what_a_rule_is_about"),
    "RuleSettings.aggregate": (
        "gateway/test_degradation_settings.py",
        "test_aggregate_is_how_values_of_backends_are_put_together",
    ),
    "RuleSettings.operator": (
        "gateway/test_degradation_settings.py",
        "test_operator_is_on_which_side_of_the_threshold_it_holds",
    ),
    "RuleSettings.threshold": (
        "gateway/test_degradation_settings.py",
        "test_threshold_is_where_it_takes_hold",
    ),
    "RuleSettings.for_seconds": (
        "gateway/test_degradation_settings.py",
        "test_for_seconds_are_how_long_it_has_to_hold_before",
    ),
    "RuleSettings.samples": (
        "gateway/test_degradation_settings.py",
        "test_samples_are_how_many_in_a_row_have_to_speak_for_it",
    ),
    "RuleSettings.clear_threshold": (
        "gateway/test_degradation_settings.py",
        "test_clear_threshold_is_where_it_lets_go",
    ),
    "RuleSettings.clear_seconds": (
        "gateway/test_degradation_settings.py",
        "test_clear_seconds_are_how_long_it_is_clear_before_it_lets_go",
    ),
    "RuleSettings.min_hold_seconds": (
        "gateway/test_degradation_settings.py",
        "test_min_hold_seconds_are_how_long_it_holds_at_least",
    ),
    "ConditionSettings.metric": (
        "gateway/test_degradation_settings.py",
        "test_the_metric_of_a_second_condition_is_what_it_looks_at",
    ),
    "ConditionSettings.operator": (
        "gateway/test_degradation_settings.py",
        "test_only_while_a_second_condition_holds_does_the_rule",
    ),
    "ConditionSettings.threshold": (
        "gateway/test_degradation_settings.py",
        "test_only_while_a_second_condition_holds_does_the_rule",
    ),
    "ConditionSettings.clear_threshold": (
        "gateway/test_degradation_settings.py",
        "test_only_while_a_second_condition_holds_does_the_rule",
    ),
    "RuleSettings.actions": ("gateway/test_degradation_settings.py", "test_actions_are_what_it_does"),
    "RuleSettings.severity": (
        "gateway/test_degradation_settings.py",
        "test_severity_is_told_with_its_events",
    ),
    "RuleSettings.description": (
        "gateway/test_degradation_settings.py",
        "test_description_and_runbook_are_shown_to_operators",
    ),
    "RuleSettings.runbook": (
        "gateway/test_degradation_settings.py",
        "test_description_and_runbook_are_shown_to_operators",
    ),
    "PoolSettings.tags": (
        "gateway/test_degradation_settings.py",
        "test_tags_say_which_pools_are_preferred_and_which_are_used_only_when_a_rule_asks_for_it",
    ),
    "DegradationSettings.enabled": (
        "gateway/test_degradation_settings.py",
        "test_enabled_says_whether_there_are_rules_at_all",
    ),
    "DegradationSettings.default_rules": (
        "gateway/test_degradation_settings.py",
        "test_default_rules_are_there_unless_they_are_not_wanted",
    ),
    "DegradationSettings.ladder": (
        "gateway/test_degradation_settings.py",
        "test_ladder_says_whether_its_levels_are_there",
    ),
    "DegradationSettings.time_scale": (
        "gateway/test_degradation_settings.py",
        "test_time_scale_stretches_all_durations_of_rules_and_ladder",
    ),
    "DegradationSettings.interval_seconds": (
        "gateway/test_degradation_settings.py",
        "test_interval_seconds_lie_between_two_looks",
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
