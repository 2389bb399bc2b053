"""What every test shares.

No trial compilations of vector instructions in each new cache folder, which take longer than most tests, and no headers
compiled ahead in each new worker; the tests' own processes compile them once for all. Modules with slow tests come
first, so that of two processes neither is left alone with one of them at the end. No garbage collections while torch
and the tests are imported, and none of their objects looked at by later ones.
"""

from __future__ import annotations

import gc
import os

import pytest

from kernelopt_bot.sandbox.worker_environment import COMPILED_HEADERS, VECTOR_SETS

os.environ.setdefault(VECTOR_SETS, "1")
os.environ.setdefault(COMPILED_HEADERS, "0")
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    outside = [i.nodeid for i in items if i.get_closest_marker("serial") and "end_to_end" not in i.path.parts]
    if outside:
        raise pytest.UsageError(f"`make test` runs serial tests of tests/end_to_end alone: {outside}")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
