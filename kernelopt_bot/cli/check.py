"""`kernelopt check`: does a target load and run at all, before any search?"""

from __future__ import annotations

import json
import secrets
import shutil
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from kernelopt_bot.cli.optimize import distinct, overridden
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config, load_traced
from kernelopt_bot.errors import InputError
from kernelopt_bot.process import redact
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import WorkerError
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.explain import explain
from kernelopt_bot.search.loading import load, shape_words
from kernelopt_bot.search.progress import Progress
from kernelopt_bot.search.run import device_of, exclusive, interpreter_of
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.triton_check import DoesNotRun, launches_of
from kernelopt_bot.targets.discover import Broken, Finder, by_hand, name_of, place
from kernelopt_bot.targets.inventory import files
from kernelopt_bot.targets.source import FolderSource
from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.triton_found import triton_targets
from kernelopt_bot.targets.triton_kernels import TritonTarget, triton_by_hand

MEASURE_S = 1.0
"""Enough for an idea of the time; gate 4 measures."""
EAGER: dict[str, Any] = {"name": "eager", "kind": "eager", "mode": None, "options": {}, "artifact": None}


@dataclass(frozen=True)
class Checked:
    """One target. Tensors are written `x: (8, 128) float32`."""

    target: str
    device: str
    error: str = ""
    parameters: int = 0
    parameter_bytes: int = 0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    eager_ms: float | None = None
    """Median latency of an eager call in milliseconds."""
    notes: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    """Of a Triton kernel, which has neither parameters nor outputs here: each distinct one, and how often."""


@click.command("check")
@click.argument("specs", nargs=-1, metavar="[TARGET]...")
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("."),
              show_default=True, help="Folder with .kernelopt.yml.")
@click.option("--device", default="", help="auto, cpu, cuda or cuda:N, instead of the configured one.")
@click.option("--sandbox", type=click.Choice(["auto", "docker", "bubblewrap", "landlock", "process"]), default=None,
              help="Jail for executed code, instead of the configured one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of lines.")
def command(specs: tuple[str, ...], root: Path, device: str, sandbox: str | None, as_json: bool) -> int:
    """Construct each TARGET and call it on its example inputs, in the jail; print shapes, dtypes and time.

    A TARGET is a configured name, PATH[:CLASS], or PATH:KERNEL of a Triton kernel, whose launches are recorded instead;
    without one, all that .kernelopt.yml lists and all kernels with a marker. Exits with 2 if one does not run.
    """
    top = root.resolve()
    config = overridden(load_traced(top).config, levers="", device=device, sandbox=sandbox, budget=None)
    targets, broken = wanted(specs, top)
    with shown() as progress:
        checked = broken + (check(targets, config, top, progress) if targets else [])
    if as_json:
        click.echo(redact(json.dumps([asdict(c) for c in checked], indent=2)))
    else:
        for c in checked:
            click.echo(redact("\n".join(lines(c))))
    return 2 if any(c.error for c in checked) else 0


def wanted(specs: tuple[str, ...], root: Path) -> tuple[list[Target], list[Checked]]:
    """The targets, and those of the list whose files do not parse. Raises InputError: no such target, or none is
    listed."""
    if specs:
        places = [spec if not (root / spec.rpartition(":")[0]).is_file() else str(root / spec) for spec in specs]
        return distinct([(triton_by_hand(p, root=root) or by_hand(p, root=root))[1] for p in places]), []
    traced, finder = load_traced(root), Finder(FolderSource(root))
    found: list[Target] = []
    broken: list[Checked] = []
    for i, t in enumerate(traced.config.targets):
        try:
            found.append(finder.by_config(t, place(traced, i)))
        except Broken as e:
            broken.append(Checked(t.name or name_of(t.path, t.entry), "", str(e)))
    skipped: dict[str, str] = {}
    kernels = triton_targets(finder, files(root, traced.config.artifact.root), traced, skipped)
    found += [target for target, _ in kernels]
    broken += [Checked(what, "", reason) for what, reason in skipped.items()]
    if not (found or broken):
        raise InputError("no target is listed", where=traced.file or str(root),
                         fix="name one (PATH:CLASS), or run `kernelopt init PATH:CLASS`")
    return found, broken


def check(targets: list[Target], config: Config, root: Path, progress: Progress) -> list[Checked]:
    """Each in a worker of its own. Raises UserError where nothing can be run at all (device, jail, interpreter)."""
    device, lane = device_of(config)
    python = interpreter_of(config, root)
    with exclusive(device, lane, progress, config.budget.gpu_wait_s):
        jail, _ = probe.select(config.sandbox, python=python, device=device)
        checked = []
        for target in targets:
            progress.update(f"checking {target.name}")
            folder = Path(tempfile.mkdtemp(prefix="kernelopt-check-"))
            try:
                session = Session(
                    config=config, root=root, folder=folder / "run", scratch=folder / "scratch", jail=jail,
                    python=python, device=device, lane=lane, secret=secrets.token_hex(32), progress=progress,
                    archive=Archive(folder / "run"), budget=Budget(config.budget.wall_s, config.budget.wall_s, 1))
                checked.append(_one(session, target))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return checked


def _one(session: Session, target: Target) -> Checked:
    if isinstance(target, TritonTarget):
        try:
            launches, said = launches_of(session, target)
        except DoesNotRun as e:
            return Checked(target.name, session.inside, str(e))
        return Checked(target.name, session.inside, launches=launches, notes=said)
    try:
        with session.model_worker("check") as worker:
            loaded = load(session, worker, target)
            timed = worker.call("time_model", {
                "arms": [EAGER], "pairs": [["eager", "eager"]], "metric": "latency", "cache": "warm",
                "budget_s": MEASURE_S, "secret": session.secret, "check": False}, timeout=120)
    except WorkerError as e:
        return Checked(target.name, session.inside, str(explain(e, target, "the check")))
    samples = [s for pair in timed["samples"] for s in (*pair["a_s"], *pair["b_s"])]
    notes = list(loaded["notes"])
    if loaded["varies"]:
        notes.append(f"for equal inputs its output varies {loaded['varies']}: a search declines it")
    return Checked(
        target.name, session.inside, "", loaded["parameters"], loaded["parameter_bytes"],
        tuple(f"{i['name']}: {shape_words(i['meta'])}" for i in loaded["inputs"]),
        tuple(map(shape_words, loaded["outputs"])),
        round(statistics.median(samples) * 1e3, 4) if samples else None, tuple(notes))


def lines(c: Checked) -> list[str]:
    """For a person."""
    if c.error:
        return [f"{c.target}: does not run", *(f"  {line}" for line in c.error.splitlines())]
    return [f"{c.target}: runs on {c.device}",
            *([f"  parameters: {c.parameters:,} ({c.parameter_bytes / 2**20:.1f} MiB)"] if not c.launches else []),
            *(f"  launch  {x}" for x in c.launches),
            *(f"  input   {i}" for i in c.inputs), *(f"  output  {o}" for o in c.outputs),
            *([f"  eager:  {c.eager_ms:g} ms a call"] if c.eager_ms is not None else []),
            *(f"  note:   {n}" for n in c.notes)]
