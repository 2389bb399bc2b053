"""Interpreters of many layouts: virtual environment, chain of links, shim; and what stays hidden."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.sandbox import binds


def make_python(prefix: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    binary = prefix / "bin" / "python3.11"
    binary.write_bytes(b"\x7fELF")
    binary.chmod(0o755)
    return binary


def make_environment(prefix: Path, base: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3").symlink_to(base)
    (prefix / "bin" / "python").symlink_to("python3")
    (prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    return prefix / "bin" / "python"


def test_virtual_environment_and_its_base(tmp_path: Path) -> None:
    base = make_python(tmp_path / "versions" / "3.11.7")
    python = make_environment(tmp_path / "venv", base)
    assert set(binds.python_prefixes(str(python))) == {tmp_path / "venv", tmp_path / "versions" / "3.11.7"}


def test_environment_of_an_environment_and_linked_prefix(tmp_path: Path) -> None:
    base = make_python(tmp_path / "real")
    (tmp_path / "current").symlink_to("real")
    inner = make_environment(tmp_path / "inner", tmp_path / "current" / "bin" / base.name)
    outer = make_environment(tmp_path / "outer", inner)
    assert set(binds.python_prefixes(str(outer))) >= {
        tmp_path / "outer", tmp_path / "inner", tmp_path / "current", tmp_path / "real",
    }  # fmt: skip


def test_copied_interpreter_finds_its_base_by_pyvenv(tmp_path: Path) -> None:
    base = make_python(tmp_path / "base")
    copy = make_python(tmp_path / "copied")
    (tmp_path / "copied" / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    assert set(binds.python_prefixes(str(copy))) == {tmp_path / "copied", tmp_path / "base"}


def test_a_home_folder_is_not_given_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    python = make_python(tmp_path)
    assert set(binds.python_prefixes(str(python))) == {tmp_path / "bin", tmp_path / "lib"}


def test_system_interpreter_needs_nothing_more() -> None:
    assert binds.python_prefixes("/usr/bin/python3-does-not-matter") == []


def test_own_interpreter_is_covered() -> None:
    covered = binds.python_prefixes(sys.executable)
    for needed in (os.__file__, os.path.realpath(sys.executable)):
        system = needed.startswith(("/usr/", "/lib"))
        assert system or any(Path(needed).is_relative_to(prefix) for prefix in covered)


def test_shim(tmp_path: Path) -> None:
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    assert binds.resolve_python(str(shim)) == os.path.abspath(sys.executable)


def test_missing_and_broken_interpreters(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no interpreter"):
        binds.resolve_python(str(tmp_path / "none"))
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(InputError, match="does not start"):
        binds.resolve_python(str(broken))


def test_parents_come_first_and_credentials_are_named(tmp_path: Path) -> None:
    (tmp_path / "repo" / "sub").mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (tmp_path / "repo" / ".env").symlink_to("nowhere")
    folders = (tmp_path / "repo" / "sub", tmp_path / "repo", tmp_path / "gone")
    found = binds.readable("/usr/bin/python3", folders, gpu=False)
    assert found.index(tmp_path / "repo") < found.index(tmp_path / "repo" / "sub")
    assert tmp_path / "gone" not in found
    assert set(binds.hidden(tmp_path / "repo")) == {tmp_path / "repo" / ".git", tmp_path / "repo" / ".env"}


@pytest.mark.parametrize("home", ["secret/bin", "secret/../secret/bin"])
def test_a_home_without_an_interpreter_gives_nothing(tmp_path: Path, home: str) -> None:
    """A pyvenv.cfg must not make a folder readable by naming it."""
    copy = make_python(tmp_path / "venv")
    (tmp_path / "secret" / "bin").mkdir(parents=True)
    (tmp_path / "secret" / "bin" / "python3").write_text("#!/bin/sh\n")
    (tmp_path / "secret" / "bin" / "python3").chmod(0o755)
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {tmp_path}/{home}\n")
    assert binds.python_prefixes(str(copy)) == [tmp_path / "venv"]


def test_only_the_first_home_counts(tmp_path: Path) -> None:
    base, other = make_python(tmp_path / "base"), make_python(tmp_path / "other")
    copy = make_python(tmp_path / "venv")
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {base.parent}\nhome = {other.parent}\n")
    assert set(binds.python_prefixes(str(copy))) == {tmp_path / "venv", tmp_path / "base"}


@pytest.mark.parametrize("home", ["/etc/bin", "/run/bin", "//run/bin", "/proc/self/bin", "relative/bin"])
def test_the_machine_s_own_folders_are_no_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setattr(binds, "_is_program", lambda path: True)
    copy = make_python(tmp_path / "venv")
    (tmp_path / "venv" / "pyvenv.cfg").write_bytes(b"\xff\xfe = x\n" + f"home = {home}\n".encode())
    assert binds.python_prefixes(str(copy)) == [tmp_path / "venv"]
