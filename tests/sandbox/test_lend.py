from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelopt_bot.sandbox.lend import lend


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    source, destination = tmp_path / "source", tmp_path / "destination"
    (source / "saved").mkdir(parents=True)
    destination.mkdir()
    (source / "saved/x.bin").write_bytes(b"12345678")
    return source, destination


def ref(name: str, size: int = 8) -> dict[str, object]:
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
    ("../secret.bin", 8), ("/etc/hostname", 8), ("saved/x.bin", 9), ("saved/absent.bin", 8), ("saved", 8)])
def test_what_a_worker_says_of_its_files_is_not_believed(folders: tuple[Path, Path], name: str, size: int) -> None:
    (folders[0].parent / "secret.bin").write_bytes(b"12345678")
    with pytest.raises(ValueError, match="the worker"):
        lend(ref(name, size), *folders)
    assert list(folders[1].rglob("*.bin")) == []


def test_a_link_is_not_followed(folders: tuple[Path, Path]) -> None:
    (folders[0].parent / "secret.bin").write_bytes(b"12345678")
    (folders[0] / "saved/link.bin").symlink_to(folders[0].parent / "secret.bin")
    (folders[0] / "saved/inner.bin").symlink_to("x.bin")
    for name in ("saved/link.bin", "saved/inner.bin"):
        with pytest.raises(ValueError, match="outside its folder"):
            lend(ref(name), *folders)
