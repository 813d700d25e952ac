"""Every fault, switched through the control endpoint and felt through a real socket."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.emulator.faults import Faults, parse_option
from gateway.emulator.server import EmulatedServer
from gateway.emulator.settings import EngineSettings
from tests import client
from tests.emulator.captures import events
from tests.emulator.running import chat, chat_request, decoded, engine, get, nothing_came, post, until

FAULTS = "/emulator/faults"


async def set_faults(server: EmulatedServer, **faults: object) -> None:
    assert (await post(server, FAULTS, faults)).status == 200


def pieces(answer: client.Answer) -> int:
    """How many events of the answer brought text."""
    deltas = [event["choices"][0]["delta"] for event in events(answer.body) if "choices" in event]
    return sum(bool(delta.get("content")) for delta in deltas)


async def test_slow_multiplies_the_steps_of_the_running_server() -> None:
    # A step would take weeks: that the answer comes at all shows that the factor of nought was applied.
    async with engine(EngineSettings(base_ms=1e12)) as server:
        await set_faults(server, slow=0)
        assert (await chat(server)).status == 200


async def test_refuse_closes_the_listener_and_idle_connections_until_it_listens_again() -> None:
    async with engine() as server, await client.connect(server.port) as idle:
        server.refuse()
        assert await idle.read_some() == b""
        assert not server.accepting
        with pytest.raises(ConnectionRefusedError):
            await client.connect(server.port)
        await server.listen()
        assert (await chat(server)).status == 200


async def test_refuse_for_some_seconds_ends_by_itself_at_the_same_port() -> None:
    async with engine() as server:
        port = server.port
        await set_faults(server, refuse=0.01)
        await until(lambda: server.accepting)
        assert server.port == port
        assert (await chat(server)).status == 200


async def test_silent_answers_nothing_but_the_control_endpoint() -> None:
    async with engine() as server:
        await set_faults(server, silent=True)
        async with await client.connect(server.port) as asking, await client.connect(server.port) as probing:
            await asking.send(chat_request())
            await probing.send(client.request("GET", "/health"))
            assert decoded(await get(server, FAULTS))["silent"] is True
            assert nothing_came(asking)
            assert nothing_came(probing)
        await set_faults(server, silent=False)
        assert (await chat(server)).status == 200


async def test_reset_sends_a_rst_instead_of_an_answer() -> None:
    async with engine() as server:
        await set_faults(server, reset=True)
        async with await client.connect(server.port) as connection:
            await connection.send(chat_request())
            assert await connection.read_until_closed() == b""
            assert connection.reset_by_peer


@pytest.mark.parametrize("stream", [True, False])
async def test_reset_in_the_midst_breaks_the_answer(stream: bool) -> None:
    async with engine() as server:
        await set_faults(server, reset=2)
        async with await client.connect(server.port) as connection:
            await connection.send(chat_request(stream=stream))
            await connection.read_until_closed()
            assert connection.reset_by_peer
        await until(lambda: server.engine.load == 0)


@pytest.mark.parametrize("k", [0, 1, 3])
async def test_a_cut_stream_ends_after_k_pieces_without_a_final_chunk(k: int) -> None:
    async with engine() as server:
        await set_faults(server, cut=k)
        answer = await chat(server, stream=True)
        assert not answer.complete
        assert pieces(answer) == k
        assert b"[DONE]" not in answer.body


async def test_a_cut_plain_answer_ends_in_its_middle() -> None:
    async with engine() as server:
        await set_faults(server, cut=1)
        answer = await chat(server)
        assert answer.status == 200
        assert not answer.complete
        assert 0 < len(answer.body) < int(answer.value(b"content-length") or 0)


@pytest.mark.parametrize("k", [0, 2])
async def test_a_stalled_stream_falls_silent_after_k_pieces_while_health_stays_good(k: int) -> None:
    async with engine() as server:
        await set_faults(server, stall=k)
        async with await client.connect(server.port) as connection:
            await connection.send(chat_request(stream=True))
            received = b""
            while received.count(b"data: ") < (k + 1 if k else 0) or b"\r\n\r\n" not in received:
                received += await connection.read_some()
            await until(lambda: server.engine.load == 0)
            assert (await get(server, "/health")).status == 200
            assert nothing_came(connection)
            assert received.count(b"data: ") == (k + 1 if k else 0), "the role event and k pieces"


async def test_a_stalled_plain_answer_never_comes() -> None:
    async with engine() as server:
        await set_faults(server, stall=5)
        async with await client.connect(server.port) as connection:
            await connection.send(chat_request())
            await until(lambda: sum(server.engine.measurements.success.values()) == 1)
            assert (await get(server, "/health")).status == 200
            assert nothing_came(connection)


async def test_error_is_a_500_in_the_engines_words() -> None:
    async with engine() as server:
        await set_faults(server, error=True)
        answer = await chat(server)
        assert answer.status == 500
        assert decoded(answer)["error"]["type"] == "InternalServerError"
        assert (await post(server, "/v1/embeddings", {"input": "one"})).status == 500
        assert (await get(server, "/v1/models")).status == 200


async def test_an_error_event_comes_under_200_and_before_a_clean_end() -> None:
    async with engine() as server:
        await set_faults(server, error_event=2)
        answer = await chat(server, stream=True)
        assert answer.status == 200
        assert answer.complete
        *_, error, done = events(answer.body)
        assert done == "[DONE]"
        assert (error["error"]["code"], pieces(answer)) == (500, 2)
        assert (await chat(server)).status == 500


async def test_an_error_event_takes_the_other_choices_of_its_request_with_it() -> None:
    async with engine(EngineSettings(time_scale=0, max_num_seqs=1)) as server:
        await set_faults(server, error_event=1)
        answer = await chat(server, stream=True, n=4, temperature=1)
        assert answer.complete
        assert server.engine.load == 0


async def test_a_fault_takes_hold_of_a_stream_that_already_runs() -> None:
    async with engine(EngineSettings(base_ms=1, slope_ms=0)) as server:
        async with await client.connect(server.port) as connection:
            await connection.send(chat_request(stream=True, max_tokens=30_000))
            head = await connection.read_head()
            await connection.read_some()
            server.faults.cut = 0
            assert not (await connection.read_body(head)).complete
        await until(lambda: server.engine.load == 0)


async def test_unhealthy_is_a_503_of_the_probes_only() -> None:
    async with engine() as server:
        await set_faults(server, unhealthy=True)
        assert [(await get(server, path)).status for path in ("/health", "/ping")] == [503, 503]
        assert (await chat(server)).status == 200


async def test_a_share_hits_that_share_of_the_requests_and_the_same_ones_again() -> None:
    async def statuses() -> list[int]:
        async with engine() as server:
            await set_faults(server, error=True, share=0.25)
            return [(await chat(server)).status for _ in range(40)]

    first = await statuses()
    assert abs(first.count(500) - 10) <= 1
    assert await statuses() == first


async def test_gpu_figures_follow_the_batch_and_can_be_overridden() -> None:
    async def figures(server: EmulatedServer) -> dict[str, float]:
        lines = (await get(server, "/metrics")).body.decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("DCGM_"))
        return {name.partition("{")[0].removeprefix("DCGM_FI_DEV_"): float(value) for name, value in pairs}

    async with engine() as server:
        idle = await figures(server)
        assert idle == {"GPU_TEMP": 40, "GPU_UTIL": 0, "FB_USED": 34816, "FB_FREE": 47104}
        await set_faults(server, gpu_temperature_celsius=91.5, gpu_memory_used_mib=80000)
        hot = await figures(server)
        assert (hot["GPU_TEMP"], hot["FB_USED"], hot["FB_FREE"]) == (91.5, 80000, 1920)


@pytest.mark.parametrize(
    "changes",
    [
        {"slwo": 2},
        {"slow": -1},
        {"share": 1.5},
        {"cut": -1},
        {"stall": 1.5},
        {"silent": 3},
        {"refuse": 0},
        {"error": "x"},
    ],
)
async def test_a_wrong_fault_changes_nothing_and_says_why(changes: dict[str, Any]) -> None:
    async with engine() as server:
        before = server.faults.state()
        answer = await post(server, FAULTS, {"unhealthy": True, **changes})
        assert answer.status == 400
        assert next(iter(changes)) in decoded(answer)["error"]["message"]
        assert server.faults.state() == before


async def test_delete_clears_all_faults() -> None:
    async with engine() as server:
        healthy = server.faults.state()
        await set_faults(
            server, slow=2, cut=1, reset=True, unhealthy=True, share=0.5, gpu_temperature_celsius=90
        )
        cleared = await client.send(server.port, client.request("DELETE", FAULTS))
        assert orjson.loads(cleared.body) == healthy == server.faults.state()
        assert (await client.send(server.port, client.request("PUT", FAULTS))).status == 405
        assert (await chat(server, stream=True)).complete


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("silent", ("silent", True)),
        ("silent=true", ("silent", True)),
        ("silent=false", ("silent", None)),
        ("cut=null", ("cut", None)),
        ("cut=3", ("cut", 3)),
        ("slow=1.5", ("slow", 1.5)),
        ("slow=much", ("slow", "much")),
    ],
)
def test_an_option_names_a_fault_and_its_value_as_json_would(option: str, fault: tuple[str, object]) -> None:
    assert parse_option(option) == fault


def test_null_makes_each_fault_well_again() -> None:
    faults = Faults()
    healthy = faults.state()
    wrong: dict[str, object] = {
        "slow": 2,
        "share": 0.5,
        "reset": True,
        "cut": 1,
        "stall": 2,
        "error_event": 0,
    }
    wrong |= {"silent": True, "error": True, "unhealthy": True}
    wrong |= {"gpu_temperature_celsius": 90, "gpu_memory_used_mib": 1}
    faults.update(wrong)
    assert all(faults.state()[name] != value for name, value in healthy.items())
    faults.update(dict.fromkeys(wrong))
    assert faults.state() == healthy
