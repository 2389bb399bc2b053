"""How long to wait before a request is repeated, and how many are under way at once.

Waits grow exponentially with full jitter (the waits of several threads spread over the whole interval, as in
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), never below what the server asked for
by `Retry-After`, RFC 9110 section 10.2.3. What it asked of one thread all of them keep.
"""

from __future__ import annotations

import email.utils
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

FIRST_S = 1.0
LONGEST_S = 60.0


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds from `now` (of the epoch) for which the server wants silence; None where it says nothing sensible."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            parsed = email.utils.parsedate_tz(text)
            if parsed is None:
                continue
            seconds = email.utils.mktime_tz(parsed) - now
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def wait_s(attempt: int, asked: float | None, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds before the repetition after failure number `attempt`, from 0."""
    return (asked or 0.0) + uniform(0.0, min(LONGEST_S, FIRST_S * 2.0 ** min(attempt, 30)))


class Turnstile:
    """At most `parallel` requests at once, and none before the moment until which the server wants silence."""

    def __init__(self, parallel: int, *, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], object] = time.sleep) -> None:
        self._slots = threading.BoundedSemaphore(parallel)
        self._lock = threading.Lock()
        self._silent_until = -math.inf
        self._clock, self.sleep = clock, sleep

    @contextmanager
    def passed(self) -> Iterator[None]:
        with self._slots:
            while (left := self._silence()) > 0:
                self.sleep(left)
            yield

    def silence(self, seconds: float) -> None:
        with self._lock:
            self._silent_until = max(self._silent_until, self._clock() + seconds)

    def _silence(self) -> float:
        with self._lock:
            return self._silent_until - self._clock()
