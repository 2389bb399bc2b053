"""The jails that can be tried on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kernelopt_bot.sandbox.bubblewrap import BubblewrapJail
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.sandbox.landlock import LandlockJail

JAILS: dict[str, Callable[[], Jail]] = {
    "bubblewrap": lambda: BubblewrapJail(),
    "bubblewrap-root": lambda: BubblewrapJail(user_namespace=False),
    "landlock": lambda: LandlockJail(),
    "landlock-plain": lambda: LandlockJail(namespaces=False),
}


def open_jail(name: str) -> Jail:
    """Skips, with the reason, where the machine lacks what the jail needs."""
    jail = JAILS[name]()
    if missing := jail.missing():
        pytest.skip(missing[0])
    if name == "landlock" and os.geteuid() != 0:
        with open("/proc/sys/user/max_user_namespaces") as file:
            if file.read().strip() == "0":
                pytest.skip("the kernel allows no user namespaces")
    return jail
