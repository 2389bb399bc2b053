"""One holder at a time, across processes; the lock ends with its process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelopt_bot import process
from kernelopt_bot.device.lock import gpu_lock, lock_folder
from kernelopt_bot.errors import Unavailable

UUID = "GPU-0a1b2c3d-0000-1111-2222-333344445555"
HOLD = """
import sys; sys.path.insert(0, {root!r})
from pathlib import Path
from kernelopt_bot.device.lock import gpu_lock
with gpu_lock({uuid!r}, timeout=0, folder=Path({folder!r})):
    print("held", flush=True)
    sys.stdin.read()
"""


class Clock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += 1


def hold(folder: Path) -> process.Process:
    code = HOLD.format(root=str(Path(__file__).parents[2]), uuid=UUID, folder=str(folder))
    holder = process.start([sys.executable, "-I", "-c", code], environment={})
    assert holder.stdout is not None and holder.stdout.read(5) == b"held\n"
    return holder


def test_held_by_another_process(tmp_path: Path) -> None:
    holder, clock, told = hold(tmp_path), Clock(), list[str]()
    try:
        with (
            pytest.raises(Unavailable, match=f"process {holder.pid}"),
            gpu_lock(UUID, timeout=3, folder=tmp_path, clock=clock, sleep=clock.sleep, waiting=told.append),
        ):
            raise AssertionError("entered")
        assert clock.slept == 15 and len(told) == 1 and str(holder.pid) in told[0]
        with gpu_lock("GPU-other", timeout=0, folder=tmp_path):
            pass
    finally:
        process.stop(holder, grace=0)
    with gpu_lock(UUID, timeout=5, folder=tmp_path):
        assert next(tmp_path.glob("*0a1b2c3d*")).read_text() == f"{os.getpid()}\n"
    with gpu_lock(UUID, timeout=0, folder=tmp_path):
        pass


def test_waits_until_it_is_free(tmp_path: Path) -> None:
    holder, clock = hold(tmp_path), Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.slept == 3:
            process.stop(holder, grace=0)

    with gpu_lock(UUID, timeout=100, folder=tmp_path, clock=clock, sleep=sleep):
        assert clock.slept >= 3


def test_not_held_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(KeyError), gpu_lock(UUID, timeout=0, folder=tmp_path):
        raise KeyError
    with gpu_lock(UUID, timeout=0, folder=tmp_path):
        pass


def test_names_cannot_leave_the_folder_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    with gpu_lock("../../evil", timeout=0, folder=folder):
        assert [p.parent for p in tmp_path.rglob("*.lock")] == [folder]
    (folder / f"kernelopt-{UUID}.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(Unavailable, match="cannot be opened"), gpu_lock(UUID, timeout=0, folder=folder):
        pass
    assert not (tmp_path / "precious").exists()


def test_shared_folder() -> None:
    assert os.access(lock_folder(), os.W_OK)
