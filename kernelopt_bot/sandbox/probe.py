"""Which jails work on this machine: each is tried with a program inside that attempts what it must not be able to."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelopt_bot import process
from kernelopt_bot.errors import KerneloptError, Unavailable, UserError
from kernelopt_bot.sandbox import self_check
from kernelopt_bot.sandbox.bubblewrap import BubblewrapJail
from kernelopt_bot.sandbox.docker import DockerJail
from kernelopt_bot.sandbox.gpu import find_gpu
from kernelopt_bot.sandbox.jail import Box, Jail, ProbeResult, ProcessJail
from kernelopt_bot.sandbox.landlock import LandlockJail
from kernelopt_bot.sandbox.worker_environment import worker_environment

TIMEOUT_S = 60.0
CANARY = "KERNELOPT_CANARY"
ORDER = ("docker", "bubblewrap", "landlock")
"""Strongest first; `process` only by choice."""

USER_NAMESPACE_FIX = (
    "allow user namespaces (Ubuntu 24.04 and later: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or an "
    "AppArmor profile for bwrap; in a container: run the bot on the host)"
)


def variants(name: str, image: str = "") -> list[Jail]:
    """The jails of one name, the one that separates most first. Raises KeyError if there is no such name."""
    known: dict[str, list[Jail]] = {
        "docker": [DockerJail(image)],
        "bubblewrap": [BubblewrapJail(), BubblewrapJail(user_namespace=False)],
        "landlock": [LandlockJail(), LandlockJail(namespaces=False)],
        "process": [ProcessJail()],
    }
    return known[name]


def probe(jail: Jail, *, python: str, device: str = "cpu") -> ProbeResult:
    """Start the self-check inside. With a GPU, CUDA must start there. Never raises for a jail that does not work."""
    begin = time.monotonic()
    result = _probe(jail, python, device)
    return replace(result, seconds=time.monotonic() - begin)


def _probe(jail: Jail, python: str, device: str) -> ProbeResult:
    if missing := jail.missing():
        return ProbeResult(jail.name, False, *missing)
    folder = Path(tempfile.mkdtemp(prefix="kernelopt-probe-"))
    try:
        return _judge(jail, _run_self_check(jail, python, device, folder))
    except (process.ProcessError, OSError, ValueError, KerneloptError) as e:
        return ProbeResult(jail.name, False, _reason(e), e.fix if isinstance(e, UserError) else _fix(jail.name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reason(error: Exception) -> str:
    if isinstance(error, UserError):
        return error.what
    if isinstance(error, process.ProcessError):
        return [error.why, *error.stderr.strip().splitlines()][-1][:300]
    return (str(error) or type(error).__name__).splitlines()[0][:300]


def _run_self_check(jail: Jail, python: str, device: str, folder: Path) -> dict[str, Any]:
    scratch, outside, code = folder / "scratch", folder / "outside", folder / "code"
    for path in (scratch, outside, code):
        path.mkdir()
    (outside / "canary").write_text("canary")
    shutil.copyfile(self_check.__file__, code / "self_check.py")
    code.chmod(0o755)
    gpu = find_gpu(device)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as service:
        with self_check.short(str(outside)) as address:
            service.bind(address)
        service.listen()
        wanted = {"scratch": str(scratch), "canary_file": str(outside / "canary"), "canary_folder": str(outside),
                  "port": listener.getsockname()[1], "pid": os.getpid(), "variable": CANARY, "cuda": gpu is not None}
        box = Box(
            python, ("-I", "-B", str(code / "self_check.py"), json.dumps(wanted)),
            worker_environment(python=python, scratch=scratch, visible_gpu=gpu.visible if gpu else "",
                               interpret=False, extra={}),
            scratch, (code,), gpu.nodes if gpu else (),
        )
        launch = jail.wrap(box)
        # Where the jail's own program stands between, it must keep its environment to itself.
        extra = {} if box.environment.items() <= launch.environment.items() else {CANARY: "1"}
        try:
            done = process.run(launch.command, timeout=TIMEOUT_S, pass_fds=launch.pass_fds,
                               environment={**launch.environment, **extra})
        finally:
            launch.finish()
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    answer["cuda_wanted"] = gpu is not None
    # Written there, seen here: the paths inside and outside are the same folder.
    answer["scratch"] = bool(answer["scratch"]) and (scratch / "self-check").exists()
    return dict(answer)


def _judge(jail: Jail, answer: dict[str, Any]) -> ProbeResult:
    if not answer["scratch"]:
        return ProbeResult(jail.name, False, "what is written into scratch inside is not seen outside", _fix(jail.name))
    if answer["cuda_wanted"] and answer["cuda"] != 0:
        why = answer["cuda_error"] or f"cuInit says {answer['cuda']}"
        return ProbeResult(jail.name, False, f"CUDA does not start inside: {why}", "another jail, or `device: cpu`")
    breaches = tuple(str(b) for b in answer["breaches"])
    if breaches and jail.name != "process":
        return ProbeResult(jail.name, False, "code inside " + ", ".join(breaches), _fix(jail.name), weaker=breaches)
    works = "no isolation: only by choice" if jail.name == "process" else "nothing that was tried got out"
    inside = f"Python {answer['python']}{' and CUDA' if answer['cuda_wanted'] else ''} inside"
    return ProbeResult(jail.name, True, f"{works} ({inside})", weaker=breaches)


def _fix(name: str) -> str:
    return USER_NAMESPACE_FIX if name == "bubblewrap" else {
        "docker": "run the bot on the host and not in a container, with a daemon that this user may use",
        "landlock": "a kernel of 6.12 or later with landlock in its `lsm=` list",
    }.get(name, "")


def probe_name(name: str, *, python: str, device: str = "cpu", image: str = "") -> tuple[Jail, ProbeResult]:
    """The first variant of a jail that works, else the first with the reason why not."""
    tried: list[tuple[Jail, ProbeResult]] = []
    for jail in variants(name, image):
        tried.append((jail, probe(jail, python=python, device=device)))
        if tried[-1][1].works:
            return tried[-1]
    return tried[0]


def select(
    wanted: str, *, python: str, device: str = "cpu", image: str = "", order: Sequence[str] = ORDER
) -> tuple[Jail, ProbeResult]:
    """The jail to use: the one that was asked for, or with `auto` the first that works.

    Fails closed: raises Unavailable, saying what each lacks, if none does. `process` is never chosen by `auto`.
    """
    names = list(order) if wanted == "auto" else [wanted]
    refused: list[ProbeResult] = []
    for name in names:
        with contextlib.suppress(KeyError):
            jail, result = probe_name(name, python=python, device=device, image=image)
            if result.works:
                return jail, result
            refused.append(result)
    raise Unavailable(
        "no jail works here in which to run code that is not trusted",
        where="; ".join(f"{r.jail}: {r.reason}" for r in refused) or f"sandbox: {wanted}",
        fix="one of: " + "; ".join(dict.fromkeys(r.fix for r in refused if r.fix))
        + "; or, where the code under test is trusted, `sandbox: process` in .kernelopt.yml",
    )
