"""No secret of the configuration or of a client is shown anywhere: logs, metrics, errors, /admin, `headrace check`."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import signal
from pathlib import Path
from typing import Any

from gateway.configuration.check import check_command
from tests import client
from tests.backend import Backend, Ending, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.gateway_process import GatewayProcess
from tests.redis_server import tcp_server
from tests.running import CHAT, JSON

MARK = "s3cr3t"
TENANT_KEY, OLD_KEY, ADMIN_KEY = f"{MARK}-tenant", f"{MARK}-old", f"{MARK}-admin"
WRONG_KEY = f"{MARK}-wrong"
ENGINE_KEYS = [f"{MARK}-engine-{n}" for n in range(3)]
SEALING = base64.b64encode(b"0123456789abcdef0123456789ABCDEF").decode()
SECRETS = [MARK, SEALING, SEALING.rstrip("="), "0123456789abcdef0123456789ABCDEF"]
PAGES = ("/metrics", "/admin/state", "/admin/rules", "/admin/affinity", "/v1/models", "/v1/sessions/one")


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def bearer(key: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {key}".encode()


def script(request: Request) -> Script:
    """As the prompt says: an answer, a stream, an error of each kind."""
    said = request.json().get("messages", [{}])[-1].get("content", "")
    if said == "stream":
        return sse_script(b'{"choices":[{"delta":{"content":"x"}}]}', b"[DONE]")
    if said == "error event":
        return sse_script(b'{"error":{"message":"no","code":500}}')
    if said == "cut":
        return sse_script(b'{"choices":[{"delta":{"content":"x"}}]}', ending=Ending.CUT)
    if said.isdigit():
        return json_script({"error": {"message": "no"}}, status=int(said), reason=b"Odd")
    if said == "nonsense":
        return Script(headers=[(b"x", b"y")], ending=Ending.RESET)
    return json_script(
        {"choices": [{"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]}
    )


def configuration(
    engine: Backend, dead: str, tls: str, receiver: Backend, redis_url: str, **changes: Any
) -> dict[str, Any]:
    backends = [
        {"url": engine.url, "api_key": ENGINE_KEYS[0], "gpu": {"url": f"{receiver.url}/gpu?token={MARK}-gpu", "interval_seconds": 0.1}},
        {"url": dead, "api_key": ENGINE_KEYS[1]},
        {"url": tls, "name": "tls", "api_key": ENGINE_KEYS[2]},
    ]  # fmt: skip
    return {
        "pools": [{"name": "p", "window": {"max": 4}, "backends": backends}],
        "probes": {"interval_seconds": 0.2},
        "tenants": [{"name": "bank", "key_sha256": [digest(TENANT_KEY), digest(OLD_KEY)]}],
        "admin": {"key_sha256": [digest(ADMIN_KEY)]},
        "sessions": {"redis_url": redis_url, "encryption_keys": [SEALING], "timeout_ms": 2000},
        "alerts": {
            "receivers": [
                {"url": f"{receiver.url}/hook/{MARK}-path?token={MARK}-query", "bearer_token": f"{MARK}-receiver"},
                {"url": f"http://127.0.0.1:9/{MARK}-gone", "form": "alertmanager", "bearer_token": f"{MARK}-gone"},
            ]
        },
        **changes,
    }  # fmt: skip


async def exchange(port: int, raw: bytes) -> bytes:
    """All that the client gets to see."""
    async with await client.connect(port) as connection:
        await connection.send(raw)
        try:
            answer = await connection.read_answer()
        except EOFError as error:
            return str(error).encode()
        return answer.head.start_line + repr(answer.headers).encode() + answer.body


def requests() -> list[bytes]:
    def chat(said: str, key: str, *headers: tuple[bytes, bytes], **fields: Any) -> bytes:
        body = {"model": "m", "messages": [{"role": "user", "content": said}], **fields}
        return client.request("POST", CHAT, [JSON, bearer(key), *headers], json.dumps(body).encode())

    history = [(b"x-headrace-history", b"server"), (b"x-headrace-session", b"one")]
    said = ["hello", "500", "503", "401", "429", "nonsense", "cut", "error event", "stream"]
    made = [chat(one, TENANT_KEY, stream=one in ("cut", "error event", "stream")) for one in said]
    made += [chat("kept", TENANT_KEY, *history), chat("kept", TENANT_KEY, *history), chat("hello", WRONG_KEY)]
    made += [
        client.request("POST", CHAT, [JSON, (b"x-api-key", TENANT_KEY.encode())], b"{"),
        client.request("POST", CHAT, [JSON, (b"api-key", WRONG_KEY.encode())], b"{}"),
        client.request("POST", f"/v1/nothing?key={WRONG_KEY}", [bearer(TENANT_KEY)], b"{}"),
        client.request("GET", "/sleep", [bearer(TENANT_KEY)]),
        client.request("GET", "/", [bearer(TENANT_KEY), (b"Transfer-Encoding", b"identity")]),
        client.request("GET", "/metrics", [bearer(WRONG_KEY)]),
        client.request("POST", "/admin/rules/x", [JSON, bearer(WRONG_KEY)], b"{}"),
        client.request("POST", "/admin/rules/x", [JSON, bearer(ADMIN_KEY)], b'{"by":"me","force":"on"}'),
    ]
    return made


def check(path: Path) -> bytes:
    """What `headrace check` writes."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        check_command(str(path), {})
    return out.getvalue().encode()


async def test_a_marked_secret_in_every_setting_that_holds_one_is_seen_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    shown: list[bytes] = []
    fails = Script(status=500, reason=b"No", chunks=[b"no"])
    with tcp_server("--requirepass", f"{MARK}-redis") as redis:
        url = f"redis://:{MARK}-redis@127.0.0.1:{redis.port}"
        async with Backend(script) as engine, Backend(lambda _: fails) as receiver, Backend() as dead:
            await dead.stop()
            fleet = (engine, dead.url, engine.url.replace("http:", "https:"), receiver)
            good = configuration(*fleet, url)
            path.write_text(json.dumps(good))
            shown.append(check(path))
            async with GatewayProcess("--config", str(path)) as gateway:
                shown += [await exchange(gateway.port, raw) for raw in requests()]
                force = json.dumps({"force": "on", "seconds": 600, "by": "me"}).encode()
                rule = client.request("POST", "/admin/rules/batch-idle", [JSON, bearer(ADMIN_KEY)], force)
                shown.append(await exchange(gateway.port, rule))
                await receiver.until(
                    lambda: any(f"{MARK}-path" in one.request.target for one in receiver.exchanges)
                )
                assert any(
                    one.request.value(b"authorization") == b"Bearer " + ENGINE_KEYS[0].encode()
                    for one in engine.exchanges
                )
                for changes in _faulty(good):
                    path.write_text(json.dumps(good | changes))
                    shown.append(check(path))
                    failed = gateway.stderr.count(b"was not reloaded")
                    gateway.signal(signal.SIGHUP)
                    await until(lambda failed=failed: gateway.stderr.count(b"was not reloaded") > failed)  # type: ignore[misc]
                path.write_text("pools: &" + MARK + "\n")
                shown.append(check(path))
                wrong = f"redis://:{MARK}-wrong@127.0.0.1:{redis.port}"
                path.write_text(json.dumps(configuration(*fleet, wrong)))
                gateway.signal(signal.SIGHUP)
                await until(lambda: b"the configuration was reloaded" in gateway.stderr)
                shown += [await exchange(gateway.port, raw) for raw in requests()]
                looks = [
                    client.request("GET", page, [bearer(key)])
                    for page in PAGES
                    for key in (ADMIN_KEY, TENANT_KEY)
                ]
                shown += [await exchange(gateway.port, raw) for raw in looks]
            shown += [bytes(gateway.stdout), bytes(gateway.stderr)]
    everything = b"\n".join(shown)
    for secret in SECRETS:
        at = everything.find(secret.encode())
        assert at < 0, (secret, everything[max(0, at - 200) : at + 100])
    for key in (TENANT_KEY, ADMIN_KEY, OLD_KEY):
        assert digest(key).encode() not in everything
    assert (
        b"headrace_requests_total" in everything
        and b'"audit"' in everything
        and b"unauthorized" in everything
    )


def _faulty(good: dict[str, Any]) -> list[dict[str, Any]]:
    """Each secret where it is a fault."""
    url, sessions = good["sessions"]["redis_url"], good["sessions"]
    backend = good["pools"][0]["backends"][0]
    return [
        {"pools": [{"name": "p", "backends": [backend | {"api_key": f"{MARK} with blanks"}]}]},
        {"pools": [{"name": "p", "backends": [backend | {"url": f"http://user:{MARK}@127.0.0.1:1"}]}]},
        {"pools": [{"name": "p", "backends": [backend | {f"api_key:{MARK}": None}]}]},
        {"sessions": sessions | {"redis_url": url.replace("redis://", f"{MARK}://")}},
        {"sessions": sessions | {"redis_url": url + ":x"}},
        {"sessions": sessions | {"encryption_keys": [SEALING + MARK]}},
        {"sessions": sessions | {"sentinel_password": f"{MARK}-sentinel"}},
        {"sessions": sessions | {"timeout_ms": f"{MARK}"}},
        {"admin": {"key_sha256": [ADMIN_KEY]}},
        {"tenants": [{"name": "bank", "key_sha256": [TENANT_KEY]}]},
        {"alerts": {"receivers": [{"url": f"http://{MARK}:{MARK}@a/", "bearer_token": f"{MARK}\n"}]}},
    ]


def test_a_secret_from_the_environment_is_shown_by_no_fault(tmp_path: Path) -> None:
    environment = {
        "KEY": f"{MARK} blank",
        "NUMBER": f"{MARK}",
        "URL": f"redis://:{MARK}@h:99999",
    }
    path = tmp_path / "headrace.yaml"
    path.write_text(
        "pools: [{name: p, backends: [{url: '${URL}', api_key: '${KEY}'}]}]\n"
        "server: {port: '${NUMBER}', host: '${KEY}', cors_origins: ['${KEY}']}\n"
        "sessions: {redis_url: '${URL}', max_turns: '${NUMBER}'}\n"
    )
    with contextlib.redirect_stderr(io.StringIO()) as err:
        assert check_command(str(path), environment) == 2
    assert "api_key" in err.getvalue() and MARK not in err.getvalue()
