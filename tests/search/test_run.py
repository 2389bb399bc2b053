"""Which interpreter a configuration means."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelopt_bot.config import Config, Environment
from kernelopt_bot.errors import InputError
from kernelopt_bot.search.run import forget, interpreter_of


def named(python: str) -> Config:
    return Config(environment=Environment(python=python))


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A checkout with a virtual environment's link in it."""
    link = tmp_path / "checkout" / ".venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(os.path.realpath(sys.executable))
    return link


def test_the_default_is_the_interpreter_that_runs_this(tmp_path: Path) -> None:
    assert interpreter_of(Config(), tmp_path) == sys.executable


def test_a_relative_path_starts_at_the_base_and_its_link_stays(environment: Path, monkeypatch: pytest.MonkeyPatch,
                                                               tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert interpreter_of(named(".venv/bin/python"), tmp_path / "checkout") == str(environment)
    assert interpreter_of(named("./.venv/bin/python"), Path("checkout")) == str(environment)
    with pytest.raises(InputError, match="no interpreter"):
        interpreter_of(named(".venv/bin/python"), tmp_path)


def test_an_absolute_path_and_a_name(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter_of(named(str(environment)), tmp_path / "elsewhere") == str(environment)
    monkeypatch.setenv("PATH", str(environment.parent))
    assert interpreter_of(named("python"), tmp_path) == str(environment)
    with pytest.raises(InputError, match="no interpreter 'python9'"):
        interpreter_of(named("python9"), tmp_path)


def test_a_shim_stands_for_an_interpreter(tmp_path: Path) -> None:
    shim = script(tmp_path / "shims" / "python", f'exec {sys.executable} "$@"')
    assert interpreter_of(named(str(shim)), tmp_path / "checkout") == sys.executable
    assert interpreter_of(named("../shims/python"), tmp_path / "checkout") == sys.executable


@pytest.mark.parametrize("absolute", [False, True])
def test_a_script_of_the_checkout_is_not_run(absolute: bool, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    written = script(checkout / ".venv" / "bin" / "python", f"touch {tmp_path}/ran; exec {sys.executable} \"$@\"")
    (tmp_path / "link").symlink_to(written)
    for wanted in ((str(written), str(tmp_path / "link")) if absolute else (".venv/bin/python", "../link")):
        with pytest.raises(InputError, match="script in the checkout"):
            interpreter_of(named(wanted), checkout)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("x")
    for wanted in ("./folder", "./text", "./gone"):
        with pytest.raises(InputError, match="no interpreter"):
            interpreter_of(named(wanted), tmp_path)


def test_caches_outlive_a_target_and_tensors_do_not(tmp_path: Path) -> None:
    for path in ("model/cache/inductor/a", "model/tensors/b.pt", "model/loose", "kernel/tmp/c", "kernel/home/d"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "kernel" / "cache").symlink_to(tmp_path / "model")
    forget(tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"model/cache/inductor/a", "kernel/tmp/c", "kernel/home/d"}
    forget(tmp_path / "gone")
