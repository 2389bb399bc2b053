from __future__ import annotations

import pytest

from kernelopt_bot.sandbox.jail import Jail
from tests.sandbox.jails import JAILS, open_jail


@pytest.fixture(scope="session", params=JAILS)
def jail(request: pytest.FixtureRequest) -> Jail:
    return open_jail(request.param)
