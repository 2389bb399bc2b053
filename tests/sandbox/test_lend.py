from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.errors import Unavailable
from kernelopt_bot.sandbox.client import WorkerLied
from kernelopt_bot.sandbox.lend import lend


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    source, destination = tmp_path / "source", tmp_path / "destination"
    (source / "saved").mkdir(parents=True)
    destination.mkdir()
    (source / "saved/x.bin").write_bytes(b"12345678")
    return source, destination


def ref(name: Any, size: Any = 8) -> dict[str, object]:
    return {"file": name, "storage_bytes": size, "meta": {"shape": [2]}}


def test_every_tensor_however_deep_is_copied_and_the_value_stays(folders: tuple[Path, Path]) -> None:
    value = {"draws": [{"inputs": (ref("saved/x.bin"), 3)}, None], "n": "text"}
    assert lend(value, *folders) == {"draws": [{"inputs": [ref("saved/x.bin"), 3]}, None], "n": "text"}
    copy = folders[1] / "saved/x.bin"
    assert copy.read_bytes() == b"12345678"
    copy.write_bytes(b"abcdefgh")
    assert (folders[0] / "saved/x.bin").read_bytes() == b"12345678", "no two workers share a file"


def test_a_newer_file_is_copied_again(folders: tuple[Path, Path]) -> None:
    lend(ref("saved/x.bin"), *folders)
    source, copy = folders[0] / "saved/x.bin", folders[1] / "saved/x.bin"
    source.write_bytes(b"87654321")
    later = copy.stat().st_mtime_ns + 10**9
    os.utime(source, ns=(later, later))
    lend(ref("saved/x.bin"), *folders)
    assert copy.read_bytes() == b"87654321"


@pytest.mark.parametrize(("name", "size"), [
    ("../secret.bin", 8), ("saved/../../secret.bin", 8), ("/etc/hostname", 8), ("", 8), ("a\0b", 8), (["x"], 8),
    ("saved/x.bin", True), ("saved/x.bin", "8"), ("saved/x.bin", -1), ("saved/x.bin", 1e400),
    ("saved/x.bin", 9), ("saved/absent.bin", 8), ("saved", 8)])
def test_what_a_worker_says_of_its_files_is_not_believed(folders: tuple[Path, Path], name: Any, size: Any) -> None:
    (folders[0].parent / "secret.bin").write_bytes(b"12345678")
    with pytest.raises(WorkerLied, match="the worker"):
        lend(ref(name, size), *folders)
    assert list(folders[1].rglob("*.bin")) == []


def test_a_link_is_not_followed(folders: tuple[Path, Path]) -> None:
    (folders[0].parent / "secret.bin").write_bytes(b"12345678")
    (folders[0] / "saved/link.bin").symlink_to(folders[0].parent / "secret.bin")
    (folders[0] / "saved/inner.bin").symlink_to("x.bin")
    (folders[0] / "elsewhere").symlink_to(folders[0].parent)
    for name in ("saved/link.bin", "saved/inner.bin", "elsewhere/secret.bin"):
        with pytest.raises(WorkerLied, match="outside its folder"):
            lend(ref(name), *folders)


def test_a_pipe_does_not_hold_the_host_up(folders: tuple[Path, Path]) -> None:
    os.mkfifo(folders[0] / "pipe")
    with pytest.raises(WorkerLied, match="does not have the 0 bytes"):
        lend(ref("pipe", 0), *folders)


def test_nothing_is_written_through_a_link_of_the_borrower(folders: tuple[Path, Path]) -> None:
    """The destination belongs to a process that is not trusted either."""
    precious = folders[0].parent / "precious"
    precious.write_bytes(b"precious")
    (folders[1] / "saved").mkdir()
    (folders[1] / "saved/x.bin").symlink_to(precious)
    lend(ref("saved/x.bin"), *folders)
    assert precious.read_bytes() == b"precious"
    assert (folders[1] / "saved/x.bin").read_bytes() == b"12345678" and not (folders[1] / "saved/x.bin").is_symlink()
    shutil.rmtree(folders[1] / "saved")
    (folders[1] / "saved").symlink_to(folders[0].parent)
    with pytest.raises(WorkerLied, match="outside its folder"):
        lend(ref("saved/x.bin"), *folders)
    assert not (folders[0].parent / "x.bin").exists()


def test_a_value_without_end(folders: tuple[Path, Path]) -> None:
    value: Any = []
    for _ in range(900):
        value = [value]
    with pytest.raises(WorkerLied, match="nested too deep"):
        lend(value, *folders)


def test_a_full_disk(folders: tuple[Path, Path]) -> None:
    folders[1].chmod(0o500)
    if os.geteuid() == 0:
        folders[1].rmdir()
        folders[1].write_text("no folder")
    with pytest.raises(Unavailable, match="could not be copied"):
        lend(ref("saved/x.bin"), *folders)
