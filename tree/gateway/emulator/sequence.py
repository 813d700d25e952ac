"""One sequence: a prompt and the answer it will get. A request with `n` = 3 is three of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from gateway.emulator.tokens import Prompt

Owner = TypeVar("Owner")


class Phase(Enum):
    """Where a sequence is; preemption leads from RUNNING back to WAITING."""

    WAITING = 1
    RUNNING = 2
    ENDED = 3


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence(Generic[Owner]):
    """Facts first, then what the scheduler keeps. All times are the scheduler's `now`, in seconds."""

    owner: Owner
    prompt: Prompt
    new_tokens: int
    """How many tokens the answer has; known beforehand, since answers are a function of the request."""
    streamed: bool = False
    """Whether the owner wants to hear of each token or only of the end."""
    priority: int = 0
    index: int = 0
    """Which choice of its request this is."""
    stopped: bool = False
    """Whether it ends by itself (`stop`) rather than by its limit (`length`)."""

    arrival: int = 0
    phase: Phase = Phase.WAITING
    generated: int = 0
    uncomputed: int = 0
    """Tokens still to prefill before the next token can come."""
    chunk: int = 0
    """Tokens being prefilled in the current step."""
    private: int = 0
    """Nameless blocks held: the prompt's last partial block and the answer's."""
    room: int = 0
    """Tokens that fit into the blocks held."""
    cached_tokens: int = 0
    preemptions: int = 0
    arrived_at: float = 0.0
    admitted_at: float = -1.0
    first_token_at: float = -1.0
