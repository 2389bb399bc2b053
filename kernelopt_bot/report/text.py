"""Making text of unknown origin visible and harmless, whatever it will be rendered to."""

from __future__ import annotations

import unicodedata

# Control, format (bidirectional overrides, zero-width), surrogate, private, unassigned; Zl and Zp are line breaks.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, *, keep: str = "") -> str:
    """`text` with every control, format or unassigned character not in `keep` spelled out, as `\\xNN` or `\\uNNNN`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or unicodedata.category(c) not in _INVISIBLE else _spelled(c) for c in text)


def one_line(text: str) -> str:
    """`text` on one line: runs of white space become one space, what is invisible is spelled out."""
    return visible(" ".join(text.split()))


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters, with a visible mark where something was left out in the middle."""
    if len(text) <= limit:
        return text
    mark = " [...] "
    head = max(0, limit - len(mark)) * 2 // 3
    tail = max(0, limit - len(mark) - head)
    return text[:head] + mark + (text[-tail:] if tail else "")


def _spelled(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
