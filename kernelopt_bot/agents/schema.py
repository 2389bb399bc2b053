"""JSON Schemas as strict servers want them.

Rules: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas (every object closed, every
property required, no open maps).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_IGNORED = frozenset({
    "title", "default", "examples", "pattern", "format", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"})
"""Left out of what is sent: servers differ in which of them they take. The answer is checked against all of them."""


def strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema closed and with all properties required; None where it has an open map, which they refuse."""
    try:
        closed = _closed(schema)
    except _Open:
        return None
    assert isinstance(closed, dict)
    return closed


class _Open(Exception):
    pass


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(x) for x in node]
    if not isinstance(node, Mapping):
        return node
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in _IGNORED:
            continue
        # Names of properties and definitions are not keywords.
        names = key in ("properties", "$defs", "definitions") and isinstance(value, Mapping)
        out[key] = {k: _closed(v) for k, v in value.items()} if names else value if key in ("enum", "const") else (
            _closed(value))
    if out.get("type") == "object" or "properties" in out:
        if not out.get("properties"):
            raise _Open
        if out.get("additionalProperties") not in (None, False):
            raise _Open
        out["additionalProperties"] = False
        out["required"] = list(out["properties"])
    if not (set(out) - {"description"}):
        # Anything at all is permitted here.
        raise _Open
    return out
