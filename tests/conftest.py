"""What every test shares.

No trial compilations of vector instructions in each new cache folder: they take longer than most tests. Workers do not
compile C++ headers ahead: a run in several processes makes them once for all of its workers, in pytest's cache folder.
Modules with slow tests come first, so that of two processes neither is left alone with one of them at the end. No
garbage collections while torch and the tests are imported, and none of their objects looked at by later ones.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

from kernelopt_bot.sandbox.worker_environment import COMPILED_HEADERS, HEADERS, VECTOR_SETS

os.environ.setdefault(VECTOR_SETS, "1")
os.environ.setdefault(COMPILED_HEADERS, "0")
gc.disable()

KINDS = ("kernel", "wrapper")
_COMPILE = """
import sys, torch
import torch._inductor.config as config
config.cpp_wrapper = sys.argv[1] == "wrapper"
torch.compile(lambda x: torch.relu(x) * 2)(torch.randn(8))
"""


def pytest_configure(config: pytest.Config) -> None:
    cache = getattr(config, "cache", None)
    if hasattr(config, "workerinput") or cache is None or os.environ[COMPILED_HEADERS] != "0":
        return
    home = Path(cache.mkdir(f"headers-torch-{version('torch')}"))
    folder = home / Path(HEADERS).relative_to("tmp")
    if config.getoption("numprocesses", None) and len(list(folder.glob("*.gch"))) < len(KINDS):
        _compile_headers(home)
    if folder.is_dir():
        os.environ[COMPILED_HEADERS] = str(folder)


def _compile_headers(home: Path) -> None:
    """By torch: for kernels, and for the C++ wrapper around them."""
    with tempfile.TemporaryDirectory() as caches:
        known = {**os.environ, "TMPDIR": str(home), "LOGNAME": "kernelopt", "TORCHINDUCTOR_CACHE_DIR": caches}
        running = [subprocess.Popen([sys.executable, "-c", _COMPILE, kind], env=known) for kind in KINDS]
        assert [process.wait() for process in running] == [0] * len(KINDS)


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
