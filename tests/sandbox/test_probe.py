"""Probing and choosing jails, with programs of the jails' own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelopt_bot import process
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.sandbox.jail import Box, Jail, Launch, ProcessJail
from kernelopt_bot.sandbox.probe import probe, select
from tests.sandbox.jails import open_jail


class LeakyJail:
    """Claims to be a jail and is none."""

    name = "bubblewrap"
    connects = True

    def missing(self) -> tuple[str, str] | None:
        return None

    def wrap(self, box: Box) -> Launch:
        return ProcessJail().wrap(box)


class BrokenJail(LeakyJail):
    def wrap(self, box: Box) -> Launch:
        return Launch(("/bin/sh", "-c", "echo 'setting up uid map: Permission denied' >&2; exit 1"), {})


def test_each_jail_here_works(jail: Jail) -> None:
    result = probe(jail, python=sys.executable)
    assert result.works, result.reason
    assert result.weaker == () and result.seconds > 0


CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
    listener.bind("own.sock")
    listener.listen()
    try:
        other.connect("own.sock")
    except OSError:
        sys.exit(3)
"""


def test_a_jail_says_whether_its_processes_can_connect(jail: Jail, tmp_path: Path) -> None:
    # with a device, since without one Landlock's filter allows no socket at all
    box = Box(sys.executable, ("-I", "-S", "-c", CONNECT), {}, tmp_path, (), (Path("/dev/null"),))
    launch = jail.wrap(box)
    done = process.run(launch.command, timeout=30, environment=launch.environment, pass_fds=launch.pass_fds,
                       check=False)
    launch.finish()
    assert done.code == (0 if jail.connects else 3), done.stderr


def test_a_jail_that_leaks_is_not_taken() -> None:
    result = probe(LeakyJail(), python=sys.executable)
    assert not result.works
    assert "reads a file outside" in result.reason and "reaches the host's network" in result.reason
    assert "reaches the host's services" in result.reason


def test_a_long_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    result = probe(LeakyJail(), python=sys.executable)
    assert "reaches the host's services" in result.reason
    assert probe(open_jail("landlock"), python=sys.executable).works


def test_a_jail_that_does_not_start_says_why() -> None:
    result = probe(BrokenJail(), python=sys.executable)
    assert not result.works
    assert "Permission denied" in result.reason and "user namespaces" in result.fix


def test_an_interpreter_that_does_not_start(tmp_path: Path) -> None:
    result = probe(open_jail("bubblewrap"), python=str(tmp_path / "python"))
    assert not result.works


def test_a_gpu_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = probe(open_jail("landlock"), python=sys.executable, device="cuda:9")
    assert not result.works and "no GPU" in result.reason


def test_process_only_by_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jail, result = select("process", python=sys.executable)
    assert jail.name == "process" and result.works and result.weaker
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        select("auto", python=sys.executable, order=("docker", "bubblewrap"))
    assert "no docker" in caught.value.where and "no bwrap" in caught.value.where
    assert "install bubblewrap" in caught.value.fix and "sandbox: process" in caught.value.fix


def test_auto_takes_the_first_that_works() -> None:
    wanted = open_jail("landlock")
    jail, result = select("auto", python=sys.executable, order=("docker", "landlock"))
    assert jail.name == wanted.name or jail.name == "docker"
    assert result.works
