"""What is said to a language model, what it answers, and how that can fail. No network here.

    ModelError      the model gave no usable answer; `kind` says how
    Spent           the call was not made: it might have cost more than is left
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelopt_bot.errors import KerneloptError

Kind = Literal[
    "refused", "truncated", "empty", "too_long",
    "rate_limited", "server", "unreachable", "timed_out", "cut", "malformed",
    "denied", "no_quota", "no_model", "rejected",
]
PASSING: frozenset[Kind] = frozenset(
    {"rate_limited", "server", "unreachable", "timed_out", "cut", "malformed", "empty"})
"""Faults that the same request may not meet a second time."""
FATAL: frozenset[Kind] = frozenset({"denied", "no_quota", "no_model"})
"""Faults that every further request would meet."""
FREE: frozenset[Kind] = frozenset({"rate_limited", "denied", "no_quota", "no_model", "rejected", "too_long"})
"""Faults met before a token was made. What a time-out or a cut answer cost nobody says."""


@dataclass(frozen=True)
class Request:
    """`system`, which never changes for a role, before `user`, which does: servers that keep the beginnings of prompts
    find them again."""

    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer; None for free text."""
    name: str = "answer"
    """Of the schema, as servers want it: letters, digits, `_` and `-`, 64 at most."""


@dataclass(frozen=True)
class Tokens:
    """As the server counts them; `cached` of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Answer:
    text: str
    model: str
    """As the server names it, which may be more precise than what was asked for."""
    usage: Tokens | None
    """Of the call that succeeded; None where the server did not say."""
    usd: float | None
    """Of all calls that this answer took, at the configured prices; None without a price."""
    seconds: float
    """Of all calls and the waits between them."""
    calls: int = 1
    id: str = ""
    """The server's name of the response."""
    faults: tuple[str, ...] = ()
    """Kinds of the faults that came before it, in order."""
    dialect: Mapping[str, Any] = field(default_factory=dict)
    """How it was asked for."""


class ModelError(KerneloptError):
    """No usable answer. `what` is one sentence without secrets; `text` what came of an answer, if anything."""

    def __init__(self, kind: Kind, what: str, *, text: str = "", usage: Tokens | None = None,
                 retry_after_s: float | None = None, unsent: bool = False) -> None:
        self.kind, self.what, self.text, self.usage, self.retry_after_s = kind, what, text, usage, retry_after_s
        self.free = unsent or kind in FREE
        self.calls, self.seconds = 1, 0.0
        self.usd: float | None = None
        super().__init__(f"{kind}: {what}")


class Spent(KerneloptError):
    """The budget does not cover the call's worst case."""
