"""What OpenAI-compatible servers do not all understand, and how to do without it.

A server that does not know a parameter answers 400 or 422 and names it; the request is then repeated without, and the
next ones begin there. No tokens are made by such an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Form = Literal["strict", "json", "off"]
_NEXT: Mapping[Form, Form] = {"strict": "json", "json": "off"}
_NAMES = {
    "form": ("response_format", "json_schema", "json_object", "text", "structured outputs?", "schema", "grammar"),
    "usage": ("stream_options", "include_usage"),
    "output_limit": ("max_completion_tokens",),
    "temperature": ("temperature",),
    "effort": ("reasoning_effort", "reasoning"),
    "store": ("store",),
}
_KEYS = {
    "form": ("response_format", "text"),
    "usage": ("stream_options",),
    "output_limit": ("max_completion_tokens",),
    "effort": ("reasoning_effort", "reasoning"),
}
"""Feature -> keys of a request that use it, where they have another name."""


@dataclass(frozen=True)
class Dialect:
    form: Form = "strict"
    usage: bool = True
    """Ask for the count of tokens at the end of a stream."""
    output_limit: bool = True
    """Chat: `max_completion_tokens`; else the older `max_tokens`."""
    temperature: bool = True
    effort: bool = True
    store: bool = True
    """Responses: ask that nothing is kept."""

    def without(self, said: str, *, fixed_form: bool, sent: Mapping[str, Any]) -> Dialect | None:
        """The dialect without what a server's 400 or 422 names, of what was `sent`; None if it names nothing such.

        `said` are its words and the parameter that it blames. With `fixed_form` the answer's form stays as asked for.
        """
        for feature, names in _NAMES.items():
            if not re.search(rf"\b({'|'.join(names)})\b", said, re.IGNORECASE) or not _sent(feature, sent):
                continue
            if feature == "form":
                if not fixed_form and self.form in _NEXT:
                    return replace(self, form=_NEXT[self.form])
                continue
            if getattr(self, feature):
                changed: dict[str, Any] = {feature: False}
                return replace(self, **changed)
        return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _sent(feature: str, sent: Mapping[str, Any]) -> bool:
    return any(key in sent for key in _KEYS.get(feature, (feature,)))
