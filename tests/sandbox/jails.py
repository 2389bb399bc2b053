"""The jails that can be tried on this machine."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable

import pytest

from kernelopt_bot.sandbox.bubblewrap import BubblewrapJail
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.sandbox.landlock import LandlockJail

REQUIRED = "KERNELOPT_REQUIRED_JAILS"
"""Variable with the names of jails that this machine must be able to start, comma-separated: set in CI."""
JAILS: dict[str, Callable[[], Jail]] = {
    "bubblewrap": lambda: BubblewrapJail(),
    "bubblewrap-root": lambda: BubblewrapJail(user_namespace=False),
    "landlock": lambda: LandlockJail(),
    "landlock-plain": lambda: LandlockJail(namespaces=False),
}


def open_jail(name: str) -> Jail:
    """Skips, with the reason, where the machine lacks what the jail needs; fails there if `REQUIRED` names it."""
    jail = JAILS[name]()
    reason = (jail.missing() or ("",))[0]
    if not reason and name in ("bubblewrap", "landlock") and os.geteuid() != 0:
        reason = _user_namespaces()
    if reason and name in os.environ.get(REQUIRED, "").split(","):
        pytest.fail(f"{REQUIRED} names {name}: {reason}")
    if reason:
        pytest.skip(reason)
    return jail


@functools.cache
def _user_namespaces() -> str:
    """Why there are none ('' if there are): some kernels make one, and then refuse all that is done in it."""
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], capture_output=True, text=True,
                          timeout=20, check=False)
    return "" if done.returncode == 0 else f"the kernel allows no user namespaces: {done.stderr.strip()}"
