"""`kernelopt sweep`: verify what is committed, then search where it pays most, on this machine and by hand."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from kernelopt_bot.cli import outcome
from kernelopt_bot.cli.optimize import end_with_what_was_verified, overridden
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config, Traced, load_traced
from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.process import redact
from kernelopt_bot.report.build import build
from kernelopt_bot.report.facts import is_faster
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search import sweep
from kernelopt_bot.search.executor import Finished
from kernelopt_bot.search.progress import Progress
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.run import device_of, interpreter_of, run_all
from kernelopt_bot.search.sweep import Held, Plan, Proposal
from kernelopt_bot.search.verify import verify
from kernelopt_bot.targets.discover import Broken, Finder, place, unique
from kernelopt_bot.targets.git import open_repository
from kernelopt_bot.targets.inventory import inventory
from kernelopt_bot.targets.source import FolderSource
from kernelopt_bot.targets.target import Target


@dataclass(frozen=True)
class Swept:
    """What a sweep came to, as `sweep.json` has it."""

    verified: Mapping[str, tuple[str, str]]
    """Artifact -> (state, reason)."""
    plan: Plan
    proposals: tuple[Proposal, ...]


@click.command("sweep")
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("."),
              show_default=True, help="The repository's root, with .kernelopt.yml.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-out"),
              show_default=True, help="Folder for sweep.json, report.md, report.json and artifacts.")
@click.option("--device", default="", help="auto, cpu, cuda or cuda:N, instead of the configured one.")
@click.option("--sandbox", type=click.Choice(["auto", "docker", "bubblewrap", "landlock", "process"]), default=None,
              help="Jail for executed code, instead of the configured one.")
@click.option("--budget", type=click.FloatRange(min=1), default=None, help="Wall seconds for a target.")
@click.option("--dry-run", is_flag=True, help="Verify nothing and search nothing: print what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print sweep.json instead of lines.")
def command(root: Path, output: Path, device: str, sandbox: str | None, budget: float | None, dry_run: bool,
            as_json: bool) -> int:
    """Verify the committed artifacts that are due, then search the targets with the most expected gain.

    Nothing is published. An earlier report.json in OUTPUT tells where each target's time goes.
    """
    end_with_what_was_verified()
    root = root.resolve()
    traced = load_traced(root)
    config = overridden(traced.config, levers="", device=device, sandbox=sandbox, budget=budget)
    targets = targets_in(root, traced)
    held = dated(root, sweep.held_in(root, config.artifact.root))
    folder = outcome.run_folder(output)
    with shown() as progress:
        waiting = due(held, config, root, progress)
        states = {} if dry_run else verified(waiting, targets, config, root, progress)
        plan = sweep.plan([t.name for t in targets], held, {a: state for a, (state, _) in states.items()},
                          rooms(output / "report.json"), now=time.time(), settings=config.sweep)
        chosen = {s.target for s in plan.searches}
        finished = Finished((), "")
        if chosen and not dry_run:
            ranked = sorted((t for t in targets if t.name in chosen), key=lambda t: [
                s.target for s in plan.searches].index(t.name))
            limits = config.budget.model_copy(update={"gpu_minutes": config.sweep.gpu_minutes})
            finished = run_all(ranked, config=config.model_copy(update={"budget": limits}), root=root, base=root,
                               folder=folder, progress=progress)
    ended = {r.target.name: is_faster(r) for r in finished.results if not (r.error or r.interrupted or r.unreached)}
    swept = Swept(states, plan, sweep.settle(held, states, ended))
    _show(swept, waiting, finished, output, dry_run=dry_run, as_json=as_json)
    if finished.bug:
        raise finished.bug
    if finished.interrupted:
        return outcome.INTERRUPTED
    return 1 if finished.stopped or any(p.action in ("mend", "remove") or p.state in sweep.MENDS
                                        for p in swept.proposals) else 0


def targets_in(root: Path, traced: Traced) -> list[Target]:
    """Those listed and those by convention, with unique names. Raises InputError for one that is listed wrongly."""
    finder = Finder(FolderSource(root))
    found: dict[tuple[str, str], Target] = {}
    for index, wanted in enumerate(traced.config.targets):
        try:
            target = finder.by_config(wanted, place(traced, index))
        except Broken:
            continue
        found[target.path, target.entry] = target
    for f in inventory(root, Config(artifact=traced.config.artifact)).found:
        if f.target and (f.path, f.name) not in found:
            target_ = finder.by_convention(f.path, f.name)
            if isinstance(target_, Target):
                found[f.path, f.name] = target_
    return list(unique(found.values()))


def dated(root: Path, held: Sequence[Held]) -> list[Held]:
    """With the time of the last commit that changed each; unknown outside a git repository."""
    try:
        repository = open_repository(root)
        times = [repository.run("log", "-1", "--format=%ct", "--", h.artifact).decode().strip() for h in held]
    except UserError:
        return list(held)
    return [replace(h, since=float(t)) if t.isdigit() else h for h, t in zip(held, times, strict=True)]


def due(held: Sequence[Held], config: Config, root: Path, progress: Progress) -> dict[str, str]:
    """Artifact -> why it is to be verified. Raises UserError where no worker can run."""
    if not held:
        return {}
    device, _ = device_of(config)
    python = interpreter_of(config, root)
    jail, _ = probe.select(config.sandbox, python=python, device=device)
    progress.update("looking at this machine's versions")
    scratch = Path(tempfile.mkdtemp(prefix="kernelopt-sweep-"))
    try:
        with Worker("kernel", python=python, jail=jail, scratch=scratch / "hello", device=device) as worker:
            here = worker.call("hello", {}, timeout=120)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    stack = {"torch": here["torch"], "triton": here["triton"], "device": (here["gpu"] or {"name": here["cpu"]})["name"]}
    reasons = {h.artifact: sweep.due(h, stack, time.time(), config.sweep) for h in held}
    return {artifact: reason for artifact, reason in reasons.items() if reason}


def verified(waiting: Mapping[str, str], targets: Sequence[Target], config: Config, root: Path,
             progress: Progress) -> dict[str, tuple[str, str]]:
    """Artifact -> (state, reason). One that cannot be verified here costs the others nothing."""
    known = {t.name: t for t in targets}

    def target_of(name: str) -> Target:
        if name not in known:
            raise InputError(f"there is no target {name}", where=str(root),
                             fix="remove the artifact, or list the target")
        return known[name]

    states = {}
    for artifact in waiting:
        progress.note(f"verifying {artifact}: {waiting[artifact]}")
        try:
            found = verify(root / artifact, target_of, config=config, root=root, progress=progress)
            states[artifact] = (str(found.state), found.reason)
        except UserError as e:
            states[artifact] = ("not measured", " ".join(str(e).split()))
    return states


def rooms(report: Path) -> dict[str, sweep.Room]:
    """Of our own earlier report; none where there is no readable one."""
    try:
        return sweep.rooms_in(json.loads(report.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _show(swept: Swept, waiting: Mapping[str, str], finished: Finished, output: Path, *, dry_run: bool,
          as_json: bool) -> None:
    """Writes sweep.json, and the report where something was searched; prints."""
    data: dict[str, Any] = {"schema": 1, "dry_run": dry_run, "due": dict(waiting), **asdict(swept)}
    output.mkdir(parents=True, exist_ok=True)
    (output / "sweep.json").write_text(redact(json.dumps(data, indent=1)) + "\n", encoding="utf-8")
    if finished.results:
        report = build(RunResult(finished.results, "kernelopt sweep", stopped=finished.stopped))
        outcome.write_files(report, output)
        if not as_json:
            outcome.show(report, output, as_json=False)
    if as_json:
        click.echo(redact(json.dumps(data, indent=1)))
        return
    for artifact, reason in waiting.items() if dry_run else ():
        click.echo(redact(f"{artifact}: would be verified: {reason}"))
    for p in swept.proposals if not dry_run else ():
        click.echo(redact(f"{p.artifact}: {p.state}: {p.action}{': ' + p.reason if p.reason else ''}"))
    for s in swept.plan.searches:
        click.echo(redact(f"{s.target}: {'would be searched' if dry_run else 'searched'}: "
                          f"{100 * s.expected:.0f}% expected, {s.reason}"))
    for name, reason in swept.plan.left:
        click.echo(redact(f"{name}: left: {reason}"))
    if not (swept.proposals or swept.plan.searches or swept.plan.left or waiting):
        click.echo("no artifact and no target found")
