"""Answers of the two interfaces, whole or as a stream of events, in one form.

They come from whatever server is configured: any part may be missing or of another type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.agents.messages import ModelError, Tokens

LONGEST = 8 << 20
"""Characters of an answer that are kept; what is longer is no answer to us."""


@dataclass(frozen=True)
class Reply:
    text: str = ""
    refusal: str = ""
    finish: str = ""
    """Chat's finish reason; `stop`, `length`, `content_filter` for both interfaces; '' if the answer was cut off."""
    usage: Tokens | None = None
    model: str = ""
    id: str = ""


def check(reply: Reply) -> None:
    """Raises ModelError for what is no usable answer."""
    if reply.refusal or reply.finish == "content_filter":
        raise ModelError("refused", "the model refused to answer", text=reply.refusal or reply.text, usage=reply.usage)
    if not reply.finish:
        raise ModelError("cut", "the answer ended before its end", text=reply.text, usage=reply.usage)
    if reply.finish == "length":
        raise ModelError("truncated", "the answer reached its limit of tokens", text=reply.text, usage=reply.usage)
    if not reply.text.strip():
        raise ModelError("empty", "the answer is empty", usage=reply.usage)


def whole(answer: Any, chat: bool) -> Reply:
    """Of a request that was not streamed. Raises ModelError, or AttributeError for another form."""
    return _chat_whole(answer) if chat else _response_whole(answer)


class Reader:
    """Collects the events of a stream."""

    def __init__(self, chat: bool) -> None:
        self._take = self._take_chat if chat else self._take_response
        self._parts: list[str] = []
        self._refusal: list[str] = []
        self._length = 0
        self._reply = Reply()
        self.begun = False

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def take(self, event: Any) -> None:
        """Raises ModelError where the server says that it failed, or never stops."""
        self.begun = True
        self._take(event)
        if self._length > LONGEST:
            raise ModelError("malformed", f"the answer has more than {LONGEST} characters")

    def done(self) -> Reply:
        r = self._reply
        return Reply(self.text or r.text, "".join(self._refusal) or r.refusal, r.finish, r.usage, r.model, r.id)

    def _add(self, parts: list[str], text: object) -> None:
        if isinstance(text, str):
            parts.append(text)
            self._length += len(text)

    def _take_chat(self, event: Any) -> None:
        old = self._reply
        finish = old.finish
        for choice in (event.choices or ())[:1]:
            if (delta := choice.delta) is not None:
                self._add(self._parts, delta.content)
                self._add(self._refusal, getattr(delta, "refusal", None))
            finish = choice.finish_reason or finish
        usage = _chat_usage(getattr(event, "usage", None)) or old.usage
        self._reply = Reply("", "", finish, usage, _text(event.model) or old.model, _text(event.id) or old.id)

    def _take_response(self, event: Any) -> None:
        kind = _text(event.type)
        if kind == "response.output_text.delta":
            self._add(self._parts, event.delta)
        elif kind == "response.refusal.delta":
            self._add(self._refusal, event.delta)
        elif kind == "error":
            raise ModelError("server", f"the server broke off: {_text(event.message)[:300]}", text=self.text)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._reply = _response_whole(event.response)


def _chat_whole(answer: Any) -> Reply:
    choices = answer.choices
    if not choices:
        raise ModelError("empty", "the answer has no choice", usage=_chat_usage(answer.usage))
    message = choices[0].message
    return Reply(_text(message.content), _text(getattr(message, "refusal", None)), _text(choices[0].finish_reason),
                 _chat_usage(answer.usage), _text(answer.model), _text(answer.id))


def _response_whole(answer: Any) -> Reply:
    usage = _response_usage(answer.usage)
    if answer.status == "failed":
        said = _text(getattr(answer.error, "message", ""))[:300]
        raise ModelError("server", f"the model failed: {said}", usage=usage)
    reason = _text(getattr(answer.incomplete_details, "reason", ""))
    finish = {"completed": "stop"}.get(_text(answer.status), "")
    if answer.status == "incomplete":
        finish = "content_filter" if reason == "content_filter" else "length"
    parts = list(_contents(answer))
    text = "".join(_text(p.text) for p in parts if p.type == "output_text")
    refusal = "".join(_text(p.refusal) for p in parts if p.type == "refusal")
    return Reply(text, refusal, finish, usage, _text(answer.model), _text(answer.id))


def _contents(answer: Any) -> Iterator[Any]:
    for item in answer.output or ():
        if item.type == "message":
            yield from item.content or ()


def _chat_usage(usage: Any) -> Tokens | None:
    return None if usage is None else _usage(
        usage.prompt_tokens, getattr(usage, "prompt_tokens_details", None),
        usage.completion_tokens, getattr(usage, "completion_tokens_details", None))


def _response_usage(usage: Any) -> Tokens | None:
    return None if usage is None else _usage(
        usage.input_tokens, getattr(usage, "input_tokens_details", None),
        usage.output_tokens, getattr(usage, "output_tokens_details", None))


def _usage(given: object, given_details: Any, made: object, made_details: Any) -> Tokens | None:
    counts = [_count(x) for x in (given, made)]
    # Some servers fill in zeros where they do not count.
    if counts[0] is None or counts[1] is None or counts[0] + counts[1] == 0:
        return None
    cached = _count(getattr(given_details, "cached_tokens", None)) or 0
    reasoning = _count(getattr(made_details, "reasoning_tokens", None)) or 0
    return Tokens(counts[0], min(cached, counts[0]), counts[1], min(reasoning, counts[1]))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
