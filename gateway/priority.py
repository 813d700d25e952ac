"""What a request body says to its engine about priority: the gateway's word, or nothing.

The client's `priority` never decides by itself: an engine that schedules by it would let any client go first. A value is put in place of it
for a backend whose pool says that its engine schedules by priority; for all others the member is taken out, since an engine without priority
scheduling may refuse it. Every other byte of the body stays. Where clients are not told apart, and from a trusted one, the client's value passes
to a backend whose pool says nothing.
Cost: nothing is looked at where the body has no such member, one scan of it where it has.
"""

from __future__ import annotations

from gateway.splice import add_member, set_member, without_member

MEMBER = "priority"


def for_priority(body: bytes, has_priority: bool, value: int | None) -> bytes:
    """`body` is a JSON object; `has_priority`: it has the member; `value`: what `engine_priority` says."""
    if value is None:
        return without_member(body, MEMBER, is_known=True) if has_priority else body
    text = b"%d" % value
    return set_member(body, MEMBER, text, is_known=True) if has_priority else add_member(body, MEMBER, text)
