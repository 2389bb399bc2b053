"""The Docker jail, by its command line: a container without network, capabilities, or a writable place but scratch.

The interpreter is the image's own: the host's need not fit the image's C library.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from kernelopt_bot import process
from kernelopt_bot.sandbox import binds
from kernelopt_bot.sandbox.jail import Box, Launch
from kernelopt_bot.sandbox.limits import TASKS

CLIENT_ENVIRONMENT = (*process.BASE_ENVIRONMENT, "DOCKER_HOST", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR")
IMAGE_VARIABLE = "KERNELOPT_IMAGE"
DEFAULT_IMAGE = "kernelopt-bot"
HOST_ONLY = ("PATH", "LD_LIBRARY_PATH")
"""Variables that the image and the container runtime set themselves."""
PRIVATE_TMP = "rw,nosuid,nodev,size=256m"


class DockerJail:
    """`image`: default from KERNELOPT_IMAGE, else what `make image` builds. `python`: the interpreter in it."""

    name = "docker"
    connects = True

    def __init__(self, image: str = "", *, python: str = "python3") -> None:
        self.image = image or os.environ.get(IMAGE_VARIABLE, DEFAULT_IMAGE)
        self._python = python

    def missing(self) -> tuple[str, str] | None:
        if shutil.which("docker") is None:
            return "there is no docker", "install Docker, or bubblewrap"
        own = process.environment(CLIENT_ENVIRONMENT)
        try:
            process.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=10, environment=own)
        except process.ProcessError as e:
            return "the Docker daemon does not answer: " + (e.stderr.strip().splitlines() or [e.why])[-1][:200], (
                "start the daemon, and let this user reach it"
            )
        found = process.run(
            ["docker", "image", "inspect", "--format", "{{.Id}}", self.image], timeout=10, environment=own, check=False
        )
        if found.code != 0:
            return f"the image {self.image!r} is not here", (
                f"build it (`docker build -t {DEFAULT_IMAGE} .`), or name one that has torch in {IMAGE_VARIABLE}"
            )
        return None

    def wrap(self, box: Box) -> Launch:
        name = f"kernelopt-{secrets.token_hex(8)}"
        user = f"{os.getuid()}:{os.getgid()}"
        if os.getuid() == 0:
            user = "65534:65534"
            box.scratch.chmod(0o777)
            for folder in box.scratch.rglob("*"):
                if folder.is_dir() and not folder.is_symlink():
                    folder.chmod(0o777)
        command = ["docker", "run", "--rm", "--interactive", "--init", "--pull", "never", "--name", name,
                   "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only",
                   "--user", user, "--ipc", "private", "--shm-size", "1g",
                   "--ulimit", "core=0", "--tmpfs", f"/tmp:{PRIVATE_TMP}", "--workdir", str(box.scratch)]  # fmt: skip
        command += ["--pids-limit", str(box.limits.tasks or TASKS)]
        if memory := box.limits.memory_bytes:
            command += ["--memory", str(memory), "--memory-swap", str(memory)]
        if box.limits.disk_bytes:
            command += ["--ulimit", f"fsize={box.limits.disk_bytes}"]
        if box.devices:
            command += ["--gpus", f'"device={box.environment["CUDA_VISIBLE_DEVICES"]}"']
        for variable, value in box.environment.items():
            if variable not in HOST_ONLY:
                command += ["--env", f"{variable}={value}"]
        command += _mount(box.scratch, writable=True)
        for folder in box.readable:
            command += _mount(folder)
            for secret in binds.hidden(folder):
                if secret.is_dir():
                    command += ["--mount", f"type=tmpfs,destination={secret},tmpfs-size=4096"]
                elif not secret.is_symlink():
                    command += ["--mount", f"type=bind,source=/dev/null,destination={secret},readonly"]
        command += ["--entrypoint", self._python, self.image, *box.arguments]
        return Launch(tuple(command), process.environment(CLIENT_ENVIRONMENT), finish=lambda: _remove(name))


def _mount(path: Path, *, writable: bool = False) -> list[str]:
    # The long form takes any path; the short one splits at colons. Commas cannot be written in either.
    return ["--mount", f"type=bind,source={path},destination={path}" + ("" if writable else ",readonly")]


def _remove(name: str) -> None:
    # The end of the client does not end the container.
    with contextlib.suppress(process.ProcessError):
        process.run(["docker", "rm", "--force", name], timeout=20, environment=process.environment(CLIENT_ENVIRONMENT),
                    check=False)
