"""What each path of the engine does.

Chat and text completions, embeddings, transcriptions, models, health, version, load, tokenize, detokenize and
metrics are vLLM's; `/emulator/faults` is this emulator's own: GET shows the faults, POST changes the ones it
names, DELETE clears all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from gateway.emulator import chat_template, fields, metrics_page
from gateway.emulator.answer import is_hit
from gateway.emulator.connection import Connection, Request
from gateway.emulator.errors import engine_died, malformed, not_a_json_type, queue_full, refused
from gateway.emulator.faults import REFUSE
from gateway.emulator.generation import check_model, check_prompt, read_generation, read_prompts
from gateway.emulator.load_header import ASKED_BY, load_line
from gateway.emulator.multipart import file_bytes, form_fields
from gateway.emulator.plain_answer import EmbeddingAnswer, PlainAnswer
from gateway.emulator.sequence import Sequence
from gateway.emulator.stream_answer import StreamAnswer
from gateway.emulator.tokens import split

if TYPE_CHECKING:
    from gateway.emulator.server import EmulatedServer

Handler = Callable[["EmulatedServer", Request, Connection], None]


def json_body(request: Request) -> fields.Body:
    kind, _, _ = request.headers.get(b"content-type", b"").partition(b";")
    if kind.strip().lower() != b"application/json":
        raise not_a_json_type()
    return fields.decode(request.body)


def chat_completions(server: EmulatedServer, request: Request, connection: Connection) -> None:
    _generate(server, request, connection, chat=True)


def completions(server: EmulatedServer, request: Request, connection: Connection) -> None:
    _generate(server, request, connection, chat=False)


def _generate(server: EmulatedServer, request: Request, connection: Connection, *, chat: bool) -> None:
    generation = read_generation(json_body(request), chat, server.settings, server.vocabulary)
    number = server.next_number()
    draw = server.draw(number)
    if _fails_on_arrival(server, connection, draw):
        return
    named = request.headers.get(b"x-request-id", b"").decode("latin-1") or generation.request_id
    name = named or f"{server.draw_bits(number, generation.prompts[0].fingerprint):016x}"
    identity = orjson.dumps(("chatcmpl-" if chat else "cmpl-") + name)
    kind = StreamAnswer if generation.stream else PlainAnswer
    answer = kind(connection, generation, identity, int(time.time()), server.model_json, server.faults, draw)
    if isinstance(answer, PlainAnswer) and ASKED_BY in request.headers:
        answer.lines = partial(load_line, request.headers[ASKED_BY], server.engine)
    priority = _priority(request, generation.priority)
    answer.sequences = [
        Sequence(
            owner=answer,
            prompt=prompt,
            new_tokens=len(output.pieces),
            streamed=generation.stream,
            priority=priority,
            index=index,
            stopped=output.stopped,
        )
        for index, (prompt, output) in enumerate(generation.choices)
    ]
    if not server.submit(answer):
        raise queue_full()
    connection.answer = answer
    if generation.stream:
        connection.begin_stream()


def _fails_on_arrival(server: EmulatedServer, connection: Connection, draw: float) -> bool:
    """Apply the faults that come before any answer; whether the connection is gone."""
    faults = server.faults
    if not is_hit(faults, draw):
        return False
    if faults.error:
        raise engine_died()
    if faults.reset == 0:
        connection.reset()
        return True
    return False


def _priority(request: Request, in_body: int) -> int:
    """The header wins; one that is no number is ignored."""
    try:
        return int(request.headers[b"x-vllm-priority"])
    except (KeyError, ValueError):
        return in_body


def embeddings(server: EmulatedServer, request: Request, connection: Connection) -> None:
    body = json_body(request)
    check_model(body, server.settings)
    prompts = read_prompts(body.get("input"))
    if not prompts:
        raise malformed("missing", "body.input", "Field required", f"<dict of {len(body)} items>")
    for prompt in prompts:
        check_prompt(prompt, server.settings)
    dimensions = fields.integer(body, "dimensions") or server.settings.embedding_dimensions
    if dimensions < 1:
        raise refused(f"dimensions must be at least 1, got {dimensions}.", "dimensions", dimensions)
    if _fails_on_arrival(server, connection, server.draw(server.next_number())):
        return
    as_base64 = body.get("encoding_format") == "base64"
    answer = EmbeddingAnswer(connection, server.settings, int(time.time()), dimensions, as_base64)
    answer.expect(len(prompts))
    answer.sequences = [
        Sequence(owner=answer, prompt=prompt, new_tokens=1, index=index, stopped=True)
        for index, prompt in enumerate(prompts)
    ]
    if not server.submit(answer):
        raise queue_full()
    connection.answer = answer


def transcriptions(server: EmulatedServer, request: Request, connection: Connection) -> None:
    form = form_fields(request.headers.get(b"content-type", b""), request.body)
    check_model({"model": form.get("model", b"").decode("utf-8", "replace")}, server.settings)
    size = file_bytes(form)
    if size is None:
        raise malformed("missing", "body.file", "Field required", "None")
    if _fails_on_arrival(server, connection, server.draw(server.next_number())):
        return
    usage = {"type": "duration", "seconds": 1}
    connection.respond(200, orjson.dumps({"text": f"an audio file of {size} bytes", "usage": usage}))


def models(server: EmulatedServer, request: Request, connection: Connection) -> None:
    permission = {
        "id": "modelperm-emulated",
        "object": "model_permission",
        "created": server.created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    card = {
        "id": server.settings.model,
        "object": "model",
        "created": server.created,
        "owned_by": "headrace-emulator",
        "root": server.settings.model,
        "parent": None,
        "max_model_len": server.settings.max_model_len,
        "permission": [permission],
    }
    connection.respond(200, orjson.dumps({"object": "list", "data": [card]}))


def health(server: EmulatedServer, request: Request, connection: Connection) -> None:
    connection.respond(503 if server.faults.unhealthy else 200, b"")


def version(server: EmulatedServer, request: Request, connection: Connection) -> None:
    connection.respond(200, orjson.dumps({"version": server.version}))


def load(server: EmulatedServer, request: Request, connection: Connection) -> None:
    connection.respond(200, b'{"server_load":%d}' % server.engine.load)


def metrics(server: EmulatedServer, request: Request, connection: Connection) -> None:
    page = metrics_page.render(server.engine, server.faults, server.started_at)
    connection.respond(200, page, metrics_page.CONTENT_TYPE)


def tokenize(server: EmulatedServer, request: Request, connection: Connection) -> None:
    body = json_body(request)
    check_model(body, server.settings)
    if "messages" in body:
        text = chat_template.render(fields.items(body, "messages"), fields.items(body, "tools"))
    else:
        text = fields.text(body, "prompt")
    tokens = split(text)
    answer: dict[str, Any] = {
        "count": len(tokens),
        "max_model_len": server.settings.max_model_len,
        "tokens": [server.token_id(token) for token in tokens],
        "token_strs": tokens if fields.boolean(body, "return_token_strs") else None,
    }
    connection.respond(200, orjson.dumps(answer))


def detokenize(server: EmulatedServer, request: Request, connection: Connection) -> None:
    """Token ids stand for words here, not for what `tokenize` saw: the ids are hashes."""
    body = json_body(request)
    words = [
        server.vocabulary.word(token)
        for token in fields.items(body, "tokens", required=True)
        if type(token) is int
    ]
    connection.respond(200, orjson.dumps({"prompt": "".join(words)}))


def show_faults(server: EmulatedServer, request: Request, connection: Connection) -> None:
    connection.respond(200, orjson.dumps(server.faults.state()))


def change_faults(server: EmulatedServer, request: Request, connection: Connection) -> None:
    changes = fields.decode(request.body)
    try:
        seconds = changes.pop(REFUSE, None)
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < 86_400):
            raise ValueError(f"refuse takes seconds above 0, not {seconds!r}")
        server.faults.update(changes)
    except ValueError as error:
        raise refused(str(error)) from None
    if seconds is not None:
        server.refuse(float(seconds))
    show_faults(server, request, connection)


def clear_faults(server: EmulatedServer, request: Request, connection: Connection) -> None:
    server.faults.clear()
    show_faults(server, request, connection)


FAULTS_PATH = b"/emulator/faults"
ROUTES: dict[bytes, dict[bytes, Handler]] = {
    b"/v1/chat/completions": {b"POST": chat_completions},
    b"/v1/completions": {b"POST": completions},
    b"/v1/embeddings": {b"POST": embeddings},
    b"/v1/audio/transcriptions": {b"POST": transcriptions},
    b"/v1/models": {b"GET": models},
    b"/health": {b"GET": health},
    b"/ping": {b"GET": health, b"POST": health},
    b"/version": {b"GET": version},
    b"/load": {b"GET": load},
    b"/metrics": {b"GET": metrics},
    b"/tokenize": {b"POST": tokenize},
    b"/detokenize": {b"POST": detokenize},
    FAULTS_PATH: {b"GET": show_faults, b"POST": change_faults, b"DELETE": clear_faults},
}
