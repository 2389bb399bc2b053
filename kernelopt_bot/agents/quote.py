"""Text of others in a prompt, marked as data: it can neither end its own mark nor look like part of the prompt."""

from __future__ import annotations

import hashlib
import unicodedata

LINE = 400
"""Characters of a text that stands within a line."""
_KEPT = "\n\t"
_BLANKS = {ord(c): " " for c in _KEPT}


def fence(label: str, text: str) -> str:
    """The text between two marks that carry a digest of it, which it cannot contain. `label` is ours."""
    clean = _visible(text).strip("\n")
    mark = _digest(clean)
    while mark in clean:
        mark = _digest(mark + clean)
    return f"<data {mark} {label}>\n{clean}\n</data {mark}>"


def line(text: object, limit: int = LINE) -> str:
    """The text on one line, without anything that could begin or end a mark."""
    flat = " ".join(_visible(str(text)).split()).replace("<data", "< data").replace("</data", "< /data")
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _visible(text: str) -> str:
    """Without control, format (such as right-to-left marks), private and unassigned characters."""
    if text.translate(_BLANKS).isprintable():
        return text
    return "".join(c if c in _KEPT or unicodedata.category(c)[0] != "C" else "?" for c in text)
