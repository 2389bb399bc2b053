"""JSON that nobody vouches for, with numbers that arithmetic and charts can take."""

from __future__ import annotations

import json
import math
from typing import Any

LARGEST = 1 << 64
"""No count, hash or seed of ours is larger."""


def loads(text: str | bytes) -> Any:
    """The decoded text. Raises ValueError: no JSON, nested too deeply, NaN, infinite, or a whole number that no figure
    of ours is."""
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_float, parse_int=_int)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refused(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused(text[:40])


def _int(text: str) -> int:
    # Not int() at once: its time grows with the square of the digits.
    value = int(text) if len(text) < 25 else LARGEST + 1
    if abs(value) > LARGEST:
        raise ValueError(f"{text[:40]} is larger than any figure")
    return value
