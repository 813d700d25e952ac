"""Which request targets exist, and that none of them can mean something else to the next server."""

from __future__ import annotations

import posixpath
from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.paths import Kind, Route, route_of


def route(raw_path: str, method: str = "POST") -> Route | None:
    return route_of(unquote(raw_path), raw_path.encode(), method)


CLIENT = {
    "POST": {
        Kind.CHAT: ["/v1/chat/completions"],
        Kind.COMPLETION: ["/v1/completions"],
        Kind.FORM: ["/v1/audio/transcriptions", "/v1/audio/translations"],
        Kind.JSON: [
            "/v1/chat/completions/batch", "/v1/responses", "/v1/responses/resp_1/cancel", "/v1/decisions",
            "/v1/systemone", "/generative_scoring", "/v1/messages", "/v1/messages/count_tokens", "/cohere/v2/chat",
            "/v1/embeddings", "/v2/embed", "/pooling", "/classify", "/v1/classify", "/score", "/v1/score",
            "/rerank", "/v1/rerank", "/v2/rerank", "/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize",
            "/invocations", "/generate", "/encode", "/api/chat", "/api/generate", "/api/show",
            "/v1/something/new",
        ],
    },
    "GET": {Kind.OTHER: ["/v1/responses/resp_1", "/version", "/tokenizer_info", "/api/tags", "/v1/models/org/name"]},
    "PUT": {Kind.JSON: ["/v1/rerank"]},
}  # fmt: skip
CONTROL = [
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter", "/v1/loads",
    "/sleep", "/wake_up", "/is_sleeping", "/release_kv_cache_memory", "/reset_prefix_cache", "/reset_mm_cache",
    "/collective_rpc", "/server_info", "/get_server_info", "/model_info", "/get_model_info", "/pause", "/resume",
    "/is_paused", "/abort_requests", "/abort_request", "/start_profile", "/stop_profile", "/kv_event_sources",
    "/inference/v1/generate", "/inference/v1/abort_requests", "/v1/chat/completions/render", "/v1/completions/render",
    "/v1/completions/derender", "/cohere/v2/chat/render", "/flush_cache", "/pause_generation",
    "/continue_generation", "/release_memory_occupation", "/resume_memory_occupation", "/open_session",
    "/close_session", "/update_weights_from_disk", "/init_weights_update_group", "/slow_down", "/get_load",
    "/health_generate", "/ready", "/docs", "/openapi.json", "/metrics", "/v1/abort_requests",
    "/", "/v1", "/v2", "/v2/other", "/api", "/api/pull", "/cohere", "*", "", "v1/chat/completions",
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "kind", "path"),
    [
        (method, kind, path)
        for method, kinds in CLIENT.items()
        for kind, paths in kinds.items()
        for path in paths
    ],
)
def test_every_client_path_of_an_engine_passes(method: str, kind: Kind, path: str) -> None:
    found = route(path, method)
    assert found is not None
    assert found.kind is kind and method in found.methods


@pytest.mark.parametrize("path", CONTROL)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_control_path_exists(path: str, method: str) -> None:
    assert route(path, method) is None


CLOSED = [path for path in CONTROL if path.startswith("/v1/")]


@pytest.mark.parametrize("path", CLOSED)
def test_a_control_path_does_not_exist_in_any_spelling(path: str) -> None:
    first = f"/v1/%{ord(path[4]):02x}{path[5:]}"
    spellings = [
        path + "/",
        path + "//",
        path + ";x=1",
        path + "%00",
        path + "%2f",
        path + "%3b",
        first,
        first.upper(),
    ]
    spellings += [
        path.replace("/v1/", prefix) for prefix in ("//v1/", "/v1//", "/v1/./", "/v1/x/../", "/v1/%2e/")
    ]
    for spelling in spellings:
        found = route(spelling)
        assert found is None, spelling


@pytest.mark.parametrize(
    "raw_path",
    [
        "/v1/../metrics", "/v1/x/../../sleep", "/v1/%2e%2e/metrics", "/v1/%2E%2E/metrics", "/v1/.%2e/metrics", "/v1/..",
        "/v1/.", "/v1/./chat/completions", "/v1/x%2fy", "/v1/x%2Fy", "/v1/%252e%252e/metrics", "/v1/%25", "/v1//chat",
        "//v1/chat/completions", "/v1/chat//completions", "/v1/x\\y", "/v1/x%5cy", "/v1/x%00", "/v1/x%0d%0ay: z",
        "/v1/x%7f", "/v1/%e6%a8%a1", "/v1/%ff", "/v1/x;y=1", "/v1/x%3by", "/V1/chat/completions",
        "/v1/chat%2fcompletions", "/v1/chat/completion%73", "/%76ersion", "/tokenize/", "/tokenize;x", "/%74okenize",
    ],
)  # fmt: skip
def test_what_two_servers_may_read_differently_does_not_exist(raw_path: str) -> None:
    assert route(raw_path) is None and route(raw_path, "GET") is None


def test_below_v1_an_unknown_path_passes_as_json_where_it_is_posted() -> None:
    assert [route("/v1/new", method) is not None for method in ("POST", "GET")] == [True, True]
    posted, got = route("/v1/new"), route("/v1/new", "DELETE")
    assert posted is not None and posted.kind is Kind.JSON
    assert got is not None and got.kind is Kind.OTHER


def test_a_trailing_slash_is_left_to_the_engine() -> None:
    found = route("/v1/chat/completions/")
    assert found is not None and found.kind is Kind.JSON


SEGMENT = st.sampled_from(
    ["v1", "V1", "chat", "completions", "..", ".", "", "%2e", "%2E%2e", "%2f", "%5C", "\\", "%00", "%", "%25", "a b",
     "%20", "load_lora_adapter", "%6coads", "loads", "render", "x;y", "é", "metrics", "sleep", "tokenize"]
)  # fmt: skip


@given(
    st.lists(
        SEGMENT | st.text(st.characters(max_codepoint=0x7E, min_codepoint=0x21), max_size=4), max_size=6
    ),
    st.sampled_from(["/v1/", "/", "/v1"]),
    st.sampled_from(["GET", "POST"]),
)
@example(["..", "metrics"], "/v1/", "GET")
def test_a_path_that_passes_means_the_same_to_every_server(
    segments: list[str], start: str, method: str
) -> None:
    raw = quote(start + "/".join(segments), safe="/%\\;:@!$&'()*+,=~?#[]\"<>^`{|}")
    path = unquote(raw)
    if route_of(path, raw.encode(), method) is None:
        return
    assert posixpath.normpath(path) == (path.rstrip("/") or "/")
    assert unquote(path) == path, "decoding twice changes nothing"
    assert unquote(raw.replace("%2F", "/").replace("%2f", "/")) == path, "nor does decoding slashes late"
    assert path.partition(";")[0] == path and "\\" not in path
    assert path.startswith("/v1/") or raw == path
    assert path == "/v1/" or path.rstrip("/") not in CONTROL
