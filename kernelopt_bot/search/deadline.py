"""The end of the job that a search runs in, which a runner enforces without asking."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kernelopt_bot.errors import InputError

VARIABLE = "KERNELOPT_DEADLINE"
"""Unix time in seconds at which the job is ended."""
LEAVE_S = 90.0
"""Kept free before that for the report, the bundle and its upload."""
CONFIRM_S = 300.0
"""Kept free for what follows the levers of one target: the confirmation in new processes, and the artifact."""
LEAST_S = 60.0
"""With less for the levers, a target is not begun."""


@dataclass(frozen=True)
class Deadline:
    """`at`: Unix time in seconds; infinite where there is no limit."""

    at: float = math.inf

    def left_s(self) -> float:
        """Seconds until everything has to be over; may be negative."""
        return self.at - LEAVE_S - time.time()

    def searching_s(self) -> float:
        """Wall seconds that the levers of one more target may take; 0.0 if none is to be begun."""
        left = self.left_s() - CONFIRM_S
        return left if left >= LEAST_S else 0.0

    @property
    def reached(self) -> bool:
        """Whether there is no time for one more target, or one more verification."""
        return self.searching_s() <= 0.0


NEVER = Deadline()
WORDS = "the job's time limit is near"


def deadline_in(environment: Mapping[str, str]) -> Deadline:
    """The deadline that `KERNELOPT_DEADLINE` names; none where it is empty or not set. Raises InputError."""
    text = environment.get(VARIABLE, "")
    if not text:
        return NEVER
    # Not float(): it takes `nan`, `inf` and `1_0`.
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise InputError("KERNELOPT_DEADLINE is no time", where=repr(text)[:80],
                         fix="give whole seconds since 1970, as `date +%s` prints them")
    return Deadline(float(text))
