from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelopt_bot.sandbox.worker_environment import CACHES, COMPILED_HEADERS, HOST_SETTINGS, worker_environment


def made(folder: Path, gpu: str = "", interpret: bool = False) -> dict[str, str]:
    return worker_environment(python=sys.executable, scratch=folder, visible_gpu=gpu, interpret=interpret,
                              extra={"X": "1"})


def test_nothing_of_the_host_s_gets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    values = made(tmp_path)
    assert "secret" not in values.values() and values["X"] == "1" and values["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(("outside", "inside"), [("1", "1"), ("0", "0"), ("yes; rm", None), (None, None)])
@pytest.mark.parametrize("name", HOST_SETTINGS)
def test_what_torch_s_c_compiler_may_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
                                               outside: str | None, inside: str | None) -> None:
    monkeypatch.delenv(name, raising=False)
    if outside is not None:
        monkeypatch.setenv(name, outside)
    assert made(tmp_path).get(HOST_SETTINGS[name]) == inside


def test_headers_of_the_host_are_links_where_torch_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, scratch = tmp_path / "headers", tmp_path / "scratch"
    for folder in (outside / "locks", scratch):
        folder.mkdir(parents=True)
    for name in ("a.h", "a.h.gch"):
        (outside / name).write_text(name)
    monkeypatch.setenv(COMPILED_HEADERS, str(outside))
    for _ in range(2):
        values = made(scratch)
        inside = Path(values["TMPDIR"]) / f"torchinductor_{values['LOGNAME']}" / "precompiled_headers"
        assert {p.name: p.read_text() for p in inside.iterdir()} == {"a.h": "a.h", "a.h.gch": "a.h.gch"}
    assert HOST_SETTINGS[COMPILED_HEADERS] not in values
    for other in ("headers", str(tmp_path / "missing"), ""):
        monkeypatch.setenv(COMPILED_HEADERS, other)
        (fresh := tmp_path / f"fresh{len(other)}").mkdir()
        assert not (Path(made(fresh)["TMPDIR"]) / "torchinductor_kernelopt").exists()


def test_every_cache_lies_in_scratch(tmp_path: Path) -> None:
    values = made(tmp_path)
    for name in CACHES:
        assert Path(values[name]).is_relative_to(tmp_path) and os.path.isdir(values[name])


def test_a_gpu_is_found_by_nvml(tmp_path: Path) -> None:
    assert made(tmp_path, gpu="GPU-0")["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in made(tmp_path)


def test_an_interpreting_worker_says_so(tmp_path: Path) -> None:
    assert made(tmp_path, interpret=True)["TRITON_INTERPRET"] == "1" and "TRITON_INTERPRET" not in made(tmp_path)


def test_a_link_that_an_earlier_process_left_is_not_followed(tmp_path: Path) -> None:
    """The host makes these folders, with the host's rights."""
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    for folder in (scratch, outside):
        folder.mkdir()
    (scratch / "cache").symlink_to(outside)
    (scratch / "home").write_text("no folder")
    made(scratch)
    assert list(outside.iterdir()) == [] and (scratch / "home").is_dir() and not (scratch / "cache").is_symlink()
