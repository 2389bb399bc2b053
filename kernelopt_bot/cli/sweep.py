"""`kernelopt sweep`: verify what is committed, then search where it pays most, on this machine and by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kernelopt_bot.cli import outcome
from kernelopt_bot.cli.optimize import end_with_what_was_verified, overridden
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config, Traced, load_traced
from kernelopt_bot.errors import UserError
from kernelopt_bot.process import redact
from kernelopt_bot.report.build import build
from kernelopt_bot.search import sweep
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import Held
from kernelopt_bot.search.sweeping import Sweeping, dated, rooms_of, sweep_all
from kernelopt_bot.targets.discover import Broken, Finder, place, unique
from kernelopt_bot.targets.git import open_repository
from kernelopt_bot.targets.inventory import files, inventory
from kernelopt_bot.targets.source import FolderSource
from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.triton_found import triton_targets


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
    held = held_at(root, config.artifact.root)
    folder = outcome.run_folder(output)
    with shown() as progress:
        done = sweep_all(targets, held, config=config, root=root, base=root, folder=folder,
                         rooms=rooms_of(output / "report.json"), progress=progress, dry_run=dry_run,
                         memory=Memory.of(str(root.resolve()), writes=True, note=progress.note))
    finished = done.finished
    _show(done, output, dry_run=dry_run, as_json=as_json)
    if finished.bug:
        raise finished.bug
    if finished.interrupted:
        return outcome.INTERRUPTED
    return 1 if finished.stopped or any(p.action in ("mend", "remove") or p.state in sweep.MENDS
                                        for p in done.swept.proposals) else 0


def held_at(root: Path, artifact_root: str) -> tuple[Held, ...]:
    """The folder's artifacts, with the times of their commits where it is in a git repository."""
    held = sweep.held_in(root, artifact_root)
    try:
        return dated(held, open_repository(root))
    except UserError:
        return held


def targets_in(root: Path, traced: Traced) -> list[Target]:
    """Those listed, those by convention and marked kernels, with unique names. Raises InputError for one that is listed
    wrongly."""
    finder = Finder(FolderSource(root))
    found: dict[tuple[str, str], Target] = {}
    for index, wanted in enumerate(traced.config.targets):
        try:
            target = finder.by_config(wanted, place(traced, index))
        except Broken as e:
            click.echo(redact(f"note: {wanted.path}:{wanted.entry} is left out: {e.what}"), err=True)
            continue
        found[target.path, target.entry] = target
    for f in inventory(root, Config(artifact=traced.config.artifact)).found:
        if f.target and (f.path, f.name) not in found:
            target_ = finder.by_convention(f.path, f.name)
            if isinstance(target_, Target):
                found[f.path, f.name] = target_
    skipped: dict[str, str] = {}
    kernels = triton_targets(finder, files(root, traced.config.artifact.root), traced, skipped)
    for what, reason in skipped.items():
        click.echo(redact(f"note: {what} is left out: {reason}"), err=True)
    return list(unique([*found.values(), *(target for target, _ in kernels)]))


def _show(done: Sweeping, output: Path, *, dry_run: bool, as_json: bool) -> None:
    """Writes sweep.json, and the report where something was searched; prints."""
    swept, waiting, finished = done.swept, done.due, done.finished
    data: dict[str, Any] = {"schema": 1, "dry_run": dry_run, "due": dict(waiting), **asdict(swept),
                            "verified": {v.artifact: (v.state, v.reason) for v in swept.verified}}
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
        click.echo("no artifact and no target found: `kernelopt init` lists the models, and "
                   "`kernelopt init PATH:CLASS` makes one a target")
