"""A window goes in front of new messages as bytes; all else stays, and what is decoded is what the engine gets."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.body import view_json
from gateway.errors import Refused
from gateway.sessions.messages import Prompt, messages_of, replayed, with_window
from gateway.sessions.store import NO_WINDOW, Turn, Window
from gateway.splice import element_spans, member_span
from policies.terms import Refusal
from tests.strategies import SPACE, TEXTS

PINNED = b'{"role":"system","content":"pinned"}'
FIRST = Turn("1", b'{"role":"user","content":"a"},{"role":"assistant","content":"b"}', 10)
SECOND = Turn("2", b'{ "role" : "user", "content":"\\u00e9" },{"role":"assistant","content":null}', 7)
WINDOW = Window(2, PINNED, (FIRST, SECOND))


def spliced(body: bytes, window: Window = WINDOW, replays_cut: bool = False) -> Prompt:
    return with_window(body, view_json(body).fields, window, replays_cut)


def messages(body: bytes) -> Any:
    return json.loads(body.decode("utf-8", "surrogatepass"))["messages"]


@st.composite
def message_texts(draw: st.DrawFn) -> str:
    role = draw(st.sampled_from(["system", "developer", "user", "tool", "assistant"]))
    members = [f'"role"{draw(SPACE)}:{draw(SPACE)}"{role}"', f'"content":{draw(SPACE)}{draw(TEXTS)}']
    members += draw(
        st.lists(st.sampled_from(['"x":[1,{"role":"system"}]', '"content":[]', '"y":1e400']), max_size=2)
    )
    return "{" + draw(SPACE) + ",".join(members) + draw(SPACE) + "}"


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    array = ",".join(
        draw(SPACE) + draw(message_texts()) + draw(SPACE) for _ in range(draw(st.integers(1, 4)))
    )
    name = draw(st.sampled_from(['"messages"', '"mess\\u0061ges"']))
    before = draw(st.sampled_from(["", '"messages":[1],', '"x":{"messages":[]},', '"s":"\\"messages\\":[",']))
    after = draw(st.sampled_from(["", ',"stream":true', ',"n":1e400 ', ',"é":"模型"']))
    return (draw(SPACE) + "{" + before + name + draw(SPACE) + ":[" + array + "]" + after + "}").encode()


def is_system(message: Any) -> bool:
    return message["role"] in ("system", "developer")


@given(bodies(), st.lists(message_texts(), max_size=3), st.booleans())
def test_a_spliced_body_is_the_system_message_the_window_and_what_is_new_with_no_other_byte_changed(
    body: bytes, stored: list[str], has_pinned: bool
) -> None:
    turns = tuple(Turn(str(place), text.encode(), 5) for place, text in enumerate(stored))
    window = Window(len(turns), PINNED if has_pinned else b"", turns)
    sent = messages(body)
    count = next((place for place, one in enumerate(sent) if not is_system(one)), len(sent))
    if count == len(sent):
        with pytest.raises(Refused, match="nothing to answer to"):
            spliced(body, window)
        return
    before = view_json(body).fields
    prompt = with_window(body, before, window, False)
    pinned = sent[:count] or ([json.loads(PINNED)] if has_pinned else [])
    earlier = [json.loads(text) for text in stored]
    assert messages(prompt.body) == pinned + earlier + sent[count:]
    assert prompt.fields == view_json(prompt.body).fields
    assert before == view_json(body).fields, "the decoded body stays as it is"
    put_in = ([] if count or not has_pinned else [PINNED]) + [turn.messages for turn in turns]
    added = b"".join(one + b"," for one in put_in)
    assert len(prompt.body) == len(body) + len(added)
    assert prompt.body.replace(added, b"", 1) == body if added else prompt.body == body
    assert messages_of(prompt.messages) == sent[count:] and prompt.messages in body
    assert (messages_of(prompt.system) if prompt.system is not None else []) == sent[:count]
    assert prompt.follows is (sent[count]["role"] == "tool")


def test_the_pinned_system_message_gives_way_to_one_that_is_sent() -> None:
    new = b'{"messages":[{"role":"developer","content":"d"}, {"role":"system","content":"s"} ,{"role":"user","content":"q"}]}'
    prompt = spliced(new)
    assert prompt.system == b'{"role":"developer","content":"d"}, {"role":"system","content":"s"}'
    assert [one["content"] for one in messages(prompt.body)] == ["d", "s", "a", "b", "é", None, "q"]
    kept = spliced(b'{"messages":[{"role":"user","content":"q"},{"role":"system","content":"later"}]}')
    assert kept.system is None
    assert [one["content"] for one in messages(kept.body)] == ["pinned", "a", "b", "é", None, "q", "later"]


def test_without_a_window_the_body_is_the_clients() -> None:
    body = b'{"messages" : [ {"role":"user","content":"q"} ] }'
    prompt = spliced(body, NO_WINDOW)
    assert (
        prompt.body is body
        and prompt.messages == b'{"role":"user","content":"q"}'
        and prompt.earlier_tokens == 0
    )


def test_tokens_of_what_is_there_already_are_told() -> None:
    assert spliced(b'{"messages":[{"role":"user","content":"q"}]}').earlier_tokens == 17 + len(PINNED) // 4


def test_a_cut_turn_and_those_that_follow_it_are_left_out_unless_they_are_to_be_replayed() -> None:
    cut = Turn("3", b'{"role":"user","content":"cut"}', 1, is_cut=True)
    result = Turn("4", b'{"role":"tool","content":"r"}', 1, follows=True)
    again = Turn("5", b'{"role":"tool","content":"r2"}', 1, follows=True)
    window = Window(6, b"", (FIRST, cut, result, again, SECOND, result))
    assert replayed(window, False) == [FIRST, SECOND, result]
    assert replayed(window, True) == list(window.turns)
    body = b'{"messages":[{"role":"user","content":"q"}]}'
    assert b'"cut"' not in spliced(body, window).body
    assert b'"cut"' in spliced(body, window, replays_cut=True).body


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"messages":[]}', b'{"messages":[ ]}', b'{"messages":null}', b'{"messages":{"0":1}}', b'{"messages":"x"}',
     b'{"messages":[{"role":"system","content":"only"}]}'],
)  # fmt: skip
def test_a_body_without_new_messages_is_refused_with_the_members_name(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        spliced(body)
    assert refused.value.reason is Refusal.BAD_REQUEST and refused.value.param == "messages"


def test_messages_that_no_engine_takes_pass_to_where_they_are_refused() -> None:
    assert messages(spliced(b'{"messages":["x",1,[2,{}]]}').body)[-3:] == ["x", 1, [2, {}]]


@given(
    st.lists(
        st.tuples(SPACE, TEXTS | st.sampled_from(["1", "[]", "[1,[2]]", '{"a":[1,2],"b":{}}']), SPACE),
        max_size=5,
    ),
    SPACE,
)
def test_elements_of_an_array_are_found_where_they_stand(
    items: list[tuple[str, str, str]], empty: str
) -> None:
    array = "[" + (",".join("".join(item) for item in items) or empty) + "]"
    body = ('{"x":[3,4],"a" :' + array + "}").encode()
    span = member_span(body, "a")
    assert span is not None
    found = [body[start:end].decode() for start, end in element_spans(body, span)]
    assert found == [item for _, item, _ in items]


def test_thirty_two_turns_are_bytes_put_between_bytes() -> None:
    odd = b'{"role":"user","content":"\\u0041 \\/ ","n":1.0e2,"n":1.0e2}'
    window = Window(32, b"", tuple(Turn(str(place), odd, 1) for place in range(32)))
    prompt = spliced(b'{"messages":[{"role":"user","content":"q"}]}', window)
    assert prompt.body.count(odd) == 32 and len(orjson.loads(prompt.body)["messages"]) == 33
