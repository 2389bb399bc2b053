"""Which permission a refused write would have needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kernelopt_bot.publish.github_errors import Denied


@contextmanager
def needing(permission: str) -> Iterator[None]:
    """Names `permission` (`checks: write`) in the error of a refused request. Raises Denied."""
    try:
        yield
    except Denied as e:
        fix = f"give the job `{permission}`"
        what = f"GitHub refused it: {e.said}. To have it, {fix}."
        raise Denied(what, where=e.where, fix=fix, status=e.status, said=e.said) from None
