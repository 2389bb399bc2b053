"""Imports without garbage collections.

torch, Triton and Inductor make some million objects that stay. Passes over them while they are made take a third of
the time of the import, and every full pass after it goes over all of them again.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """No collection inside; what is there at the end is set aside from later ones, which leaves its memory shared with
    forked processes too. Garbage from before is collected first: nothing set aside is ever collected."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was:
            gc.enable()
