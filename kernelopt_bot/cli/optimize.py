"""`kernelopt optimize PATH[:NAME] ...`: the same search by hand, without git."""

from __future__ import annotations

import math
import os
import shlex
import signal
import types
from pathlib import Path

import click
from pydantic import ValidationError

from kernelopt_bot.agents import assemble
from kernelopt_bot.cli import outcome
from kernelopt_bot.cli.patch import edits_patch
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config, explained, load
from kernelopt_bot.errors import InputError
from kernelopt_bot.report.build import build
from kernelopt_bot.search.deadline import Deadline
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.run import run_all
from kernelopt_bot.targets.discover import by_hand
from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.triton_kernels import triton_by_hand


def end_with_what_was_verified() -> None:
    """Ctrl-C, and what a cancelled job is sent (SIGINT, then SIGTERM), end the search with its results so far.

    SIGINT is set too: a process that a script starts in the background inherits it ignored.
    """

    def interrupt(signum: int, frame: types.FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def end_in_time(deadline: Deadline) -> None:
    """The last resort before the job's limit, where what was begun takes longer than it should: as `SIGTERM` would."""
    left = deadline.left_s()
    if math.isfinite(left):
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        signal.setitimer(signal.ITIMER_REAL, max(1.0, left))


@click.command("optimize")
@click.argument("specs", nargs=-1, required=True, metavar="PATH[:NAME]...")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-out"),
              show_default=True, help="Folder for report.md, report.json, charts, artifacts and kernelopt.patch.")
@click.option("--levers", default="", help=(
    "Comma-separated, instead of the configured ones: kernel,dispatch,launch,region."))
@click.option("--device", default="", help="auto, cpu, cuda, cuda:N or cuda:0,cuda:1, instead of the configured one.")
@click.option("--sandbox", type=click.Choice(["auto", "docker", "bubblewrap", "landlock", "process"]), default=None,
              help="Jail for executed code, instead of the configured one.")
@click.option("--budget", type=click.FloatRange(min=1), default=None, help="Wall seconds for a target.")
@click.option("--brain", type=click.Choice([c for c in assemble.CHOICES if c]), default=None,
              help="Who proposes beside the built-in techniques: by default the configured model, if there is one.")
@click.option("--handoff", type=click.Path(path_type=Path, file_okay=False), default=None,
              help="Folder of --brain handoff: questions are written there, answers read.")
@click.option("--replay", type=click.Path(path_type=Path, exists=True), default=None,
              help="Record of --brain replay: a run's folder, its exchanges.jsonl, or a handoff folder.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the report.")
def command(specs: tuple[str, ...], output: Path, levers: str, device: str, sandbox: str | None, budget: float | None,
            brain: assemble.Choice | None, handoff: Path | None, replay: Path | None, as_json: bool) -> int:
    """Search for faster kernels for models, or for Triton kernels, named by hand.

    A model is a class in a file with example inputs beside it (get_inputs, and get_init_inputs for its
    constructor), or one from .kernelopt.yml. Nothing is published: the artifact is in OUTPUT, ready to be copied.
    A Triton kernel is a function under @triton.jit with something that launches it (see docs/inputs.md): the edit of
    its file is in OUTPUT as kernelopt.patch.
    """
    end_with_what_was_verified()
    found = [triton_by_hand(spec) or by_hand(spec) for spec in specs]
    root = found[0][0]
    if any(other != root for other, _ in found):
        raise InputError("the targets do not belong to one project", where=", ".join(specs),
                         fix="optimise the targets of one project at a time")
    config = overridden(load(root), levers=levers, device=device, sandbox=sandbox, budget=budget)
    gather = assemble.gather(config.agents, brain or ("handoff" if handoff else "replay" if replay else ""),
                             handoff.absolute() if handoff else replay)
    folder = outcome.run_folder(output)
    targets = distinct([target for _, target in found])
    with shown() as progress:
        finished = run_all(targets, config=config, root=root, base=root, folder=folder, progress=progress,
                           memory=Memory.of(str(root.resolve()), writes=True, note=progress.note), gather=gather)
    given = {"levers": levers, "device": device, "sandbox": sandbox, "budget": budget, "brain": brain,
             "handoff": handoff, "replay": replay}
    options = [part for name, value in given.items() if value
               for part in (f"--{name}", f"{value:g}" if isinstance(value, float) else str(value))]
    run = RunResult(finished.results, shlex.join(["kernelopt", "optimize", *specs, *options]), stopped=finished.stopped)
    report = build(run)
    outcome.write_files(report, output)
    patch = edits_patch(output, run, root, lambda text: click.echo(f"note: {text}", err=True))
    outcome.show(report, output, as_json=as_json)
    if not as_json:
        if patch is not None:
            click.echo(f"patch: {patch}")
        for result in run.results:
            if result.artifact:
                click.echo(f"artifact: {folder / 'bundle' / result.artifact}")
    if finished.bug:
        raise finished.bug
    return outcome.exit_code(run, interrupted=finished.interrupted)


def distinct(targets: list[Target]) -> list[Target]:
    """Raises InputError if two targets would share a folder."""
    names = [t.name for t in targets]
    twice = next((n for n in names if names.count(n) > 1), "")
    if twice:
        raise InputError(f"{twice} is named twice", fix="name each target once")
    return targets


def overridden(config: Config, *, levers: str, device: str, sandbox: str | None, budget: float | None) -> Config:
    """The configuration with the command line's values, which are checked like the file's. Raises InputError."""
    data = config.model_dump()
    if levers:
        data["levers"] = tuple(name.strip() for name in levers.split(",") if name.strip())
    if device:
        data["device"] = device
    if sandbox:
        data["sandbox"] = sandbox
    if budget is not None:
        data["budget"] = {**data["budget"], "wall_s": budget}
    try:
        return Config.model_validate(data)
    except ValidationError as e:
        # Every option has the name of its key.
        problems = [(f"--{p['loc'][0]}", p) for p in e.errors(include_url=False)]
    said = [f"{option} {explained(p)[0]} (it is {p['input']!r})" for option, p in problems]
    raise InputError("the command line has a value that is not permitted", where="; ".join(said),
                     fix="; ".join(dict.fromkeys(f"{option}: {explained(p)[1]}" for option, p in problems)))
