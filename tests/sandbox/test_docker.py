"""The Docker jail by its command line, with a stand-in for `docker` that notes what it is asked."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from kernelopt_bot.sandbox.docker import DockerJail
from kernelopt_bot.sandbox.jail import Box, Launch
from kernelopt_bot.sandbox.limits import TASKS, Limits

STAND_IN = """#!{python} -IS
import json, os, sys
with open({log!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
if sys.argv[1] == "version" and {down!r}:
    sys.exit("Cannot connect to the Docker daemon")
if sys.argv[1:3] == ["image", "inspect"]:
    sys.exit(0 if sys.argv[-1] == "there" else 1)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *, down: bool = False) -> Path:
    log = folder / "log"
    program = folder / "docker"
    program.write_text(STAND_IN.format(python=sys.executable, log=str(log), down=down))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return log


def values(command: tuple[str, ...], option: str) -> list[str]:
    return [command[i + 1] for i, part in enumerate(command) if part == option]


def wrap(tmp_path: Path, **options: object) -> Launch:
    scratch, repo = tmp_path / "scratch", tmp_path / "repo"
    scratch.mkdir()
    (repo / ".git").mkdir(parents=True)
    (repo / ".env").write_text("x")
    environment = {"PATH": "/host/bin", "LD_LIBRARY_PATH": "/host/lib", "CUDA_VISIBLE_DEVICES": "GPU-1", "A": "1"}
    box = Box("/host/bin/python", ("-I", "-c", "pass"), environment, scratch, (repo,), **options)  # type: ignore[arg-type]
    return DockerJail("there", python="python3.12").wrap(box)


def test_command(tmp_path: Path) -> None:
    limits = Limits(memory_bytes=1 << 30, disk_bytes=1 << 31, tasks=99)
    command = wrap(tmp_path, devices=(Path("/dev/nvidia0"),), limits=limits).command
    assert command[:2] == ("docker", "run")
    assert values(command, "--network") == ["none"] and values(command, "--cap-drop") == ["ALL"]
    assert values(command, "--security-opt") == ["no-new-privileges"] and "--read-only" in command
    assert "--privileged" not in command and "docker.sock" not in " ".join(command)
    expected = "65534:65534" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
    assert values(command, "--user") == [expected]
    assert values(command, "--gpus") == ['"device=GPU-1"'] and values(command, "--memory") == [str(1 << 30)]
    assert values(command, "--pids-limit") == ["99"]
    assert values(command, "--ulimit") == ["core=0", f"fsize={1 << 31}"]
    assert values(command, "--env") == ["CUDA_VISIBLE_DEVICES=GPU-1", "A=1"]
    mounts = values(command, "--mount")
    assert [m for m in mounts if "readonly" not in m and "tmpfs" not in m] == [
        f"type=bind,source={tmp_path}/scratch,destination={tmp_path}/scratch"
    ]
    assert any(m.startswith("type=tmpfs") and f"{tmp_path}/repo/.git" in m for m in mounts)
    assert f"type=bind,source=/dev/null,destination={tmp_path}/repo/.env,readonly" in mounts
    assert command[-6:] == ("--entrypoint", "python3.12", "there", "-I", "-c", "pass")


def test_no_gpu_and_no_limit_unless_given(tmp_path: Path) -> None:
    command = wrap(tmp_path).command
    assert "--gpus" not in command and "--memory" not in command
    assert values(command, "--pids-limit") == [str(TASKS)] and values(command, "--ulimit") == ["core=0"]


def test_the_container_is_removed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "hidden")
    log = install(tmp_path, monkeypatch)
    launch = wrap(tmp_path)
    launch.finish()
    arguments, environment = json.loads(log.read_text().splitlines()[-1])
    assert arguments == ["rm", "--force", values(launch.command, "--name")[0]]
    assert "GITHUB_TOKEN" not in environment


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (DockerJail().missing() or ("", ""))[0] == "there is no docker"
    install(tmp_path, monkeypatch, down=True)
    assert "does not answer" in (DockerJail().missing() or ("", ""))[0]
    install(tmp_path, monkeypatch)
    assert "'absent' is not here" in (DockerJail("absent").missing() or ("", ""))[0]
    assert DockerJail("there").missing() is None
