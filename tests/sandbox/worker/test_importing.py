"""No collection while something large is imported, and none of its objects looked at after it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kernelopt_bot.sandbox.worker.importing import importing


class _Knot:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    yield
    gc.enable()


def test_garbage_from_before_goes_and_what_is_made_stays_aside() -> None:
    before = weakref.ref(_Knot())
    with importing():
        assert before() is None and not gc.isenabled()
        made = _Knot()
        assert any(o is made for o in gc.get_objects())
    assert gc.isenabled() and gc.get_freeze_count() > 0
    assert not any(o is made for o in gc.get_objects())


def test_after_an_import_that_fails_collections_go_on() -> None:
    with pytest.raises(ImportError), importing():
        raise ImportError("no such module")
    assert gc.isenabled()


def test_where_collections_are_off_they_stay_off() -> None:
    gc.disable()
    with importing():
        pass
    assert not gc.isenabled()
