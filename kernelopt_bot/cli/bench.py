"""`kernelopt bench`: the product itself over a set of problems, what came out of it, and the page about it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from kernelopt_bot.bench import headroom, machine, problems, runner, store
from kernelopt_bot.bench.child import Settings
from kernelopt_bot.bench.page import write_page
from kernelopt_bot.bench.record import STATUSES, Record
from kernelopt_bot.bench.words import line, table
from kernelopt_bot.cli.optimize import end_with_what_was_verified
from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_headroom = click.option("--headroom", type=_FILE, default=None, metavar="FILE.tsv",
                         help="Table of what rewriting kernels can give a problem: level, problem, kernel_ceiling_x.")


@click.group("bench")
def command() -> None:
    """Run the product itself over a set of problems, and report what came out of it."""


@command.command("kernelbench")
@click.option("--path", type=_FOLDER, required=True, help="A clone of KernelBench, or a folder that holds level1/...")
@click.option("--levels", default="1,2,3", show_default=True, help="Which levels.")
@click.option("--select", default="odd", show_default=True, metavar="odd|even|all|1,3,5-9", help="Which problems.")
@click.option("--device", default="cuda:0", show_default=True, metavar="cuda:0,cuda:1,...|cpu",
              help="One problem at a time on each.")
@click.option("--output", type=_FOLDER, required=True, help="Folder of the records; what is in it is not run again.")
@click.option("--budget-search", default="20/90", show_default=True, metavar="SECONDS[/SECONDS]",
              help="Search time for a problem in levels 1 and 2, and in the others.")
@click.option("--levers", default="kernel,dispatch,launch", show_default=True, help="What may be changed.")
@click.option("--sandbox", type=click.Choice(["auto", "docker", "bubblewrap", "landlock", "process"]), default="auto",
              show_default=True, help="Jail for executed code.")
@click.option("--together", type=click.IntRange(1, 8), default=1, show_default=True,
              help="Problems at a time on each GPU: one is timed while others compile.")
@click.option("--timeout", type=click.FloatRange(min=1), default=420.0, show_default=True,
              help="Seconds for all of one problem.")
@click.option("--deadline", type=click.FloatRange(min=1), default=None,
              help="Seconds for this call: no problem is begun that would not end in time.")
@click.option("--retry", default="", metavar="STATUS,...", help="Run problems again whose record says so.")
@click.option("--keep", is_flag=True, help="Leave the output of each problem's own run in OUTPUT/work.")
@_headroom
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def kernelbench(path: Path, levels: str, select: str, device: str, output: Path, budget_search: str, levers: str,
                sandbox: str, together: int, timeout: float, deadline: float | None, retry: str, keep: bool,
                headroom: Path | None, as_json: bool) -> int:
    """Optimise KernelBench's problems, each in a process of its own.

    With --together a problem's time-out is as many times longer, and waiting for others counts as none of its search. A
    record is written as soon as its problem is done: call again to go on, on the same machine or on another one of
    the same kind, and put the folders together with `kernelopt bench merge`.
    """
    end_with_what_was_verified()
    wanted = problems.levels(levels)
    selected = problems.selection(select)
    found = problems.find(path, wanted, selected)
    settings = Settings(_levers(levers), search_seconds(budget_search), sandbox, timeout, together)
    devices = _devices(device)
    if together > 1 and devices == ("cpu",):
        raise InputError("a CPU takes one problem at a time", where="--together", fix="leave it out, or name GPUs")
    again = [s for s in retry.split(",") if s]
    if unknown := [s for s in again if s not in STATUSES]:
        raise InputError(f"{unknown[0]!r} is no status", where="--retry", fix=f"give some of {', '.join(STATUSES)}")
    environments = [machine.environment(d) for d in devices]
    if any(e != environments[0] for e in environments):
        raise InputError("the devices are not of one kind", where=device, fix="use GPUs of one kind, with one driver")
    ceilings = _ceilings(headroom)
    store.begin(output, [(p.level, p.number) for p in found], selected.text, problems.version(path))

    def done(record: Record) -> None:
        click.echo(line(record), err=as_json)

    left = runner.run(found, output, settings, devices, environments[0], deadline_s=deadline, retry=again, keep=keep,
                      done=done)
    result = store.merge([output], ceilings=ceilings, mixed=True)
    store.write(output / "result.json", result)
    click.echo(json.dumps(result.summary, indent=1) if as_json else table(result.summary))
    if left:
        click.echo(f"{len(left)} problems are left: run the same command again", err=True)
    return 0


@command.command("merge")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DIR|FILE...")
@click.option("--output", type=_FILE, required=True, help="The result, one file.")
@click.option("--mixed", is_flag=True, help="Also records of different GPUs, versions or settings.")
@_headroom
def merge(places: tuple[Path, ...], output: Path, mixed: bool, headroom: Path | None) -> int:
    """Make one result of the folders of several calls, or of earlier results.

    Of a problem's records the latest counts.
    """
    result = store.merge(places, ceilings=_ceilings(headroom), mixed=mixed)
    store.write(output, result)
    click.echo(table(result.summary))
    return 0


@command.command("report")
@click.argument("result", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE")
@click.option("--output", type=_FILE, required=True, help="The page; its pictures go into a folder beside it.")
def report(result: Path, output: Path) -> int:
    """Write the page of a result: summary, table, chart."""
    source = os.path.relpath(result.resolve(), output.resolve().parent)
    for written in write_page(store.load(result), output, source=source):
        click.echo(written)
    return 0


def search_seconds(text: str) -> dict[int, float]:
    """Level -> seconds of `20/90` (levels 1 and 2, the others), or of one number for all. Raises InputError."""
    parts = text.split("/")
    try:
        seconds = [float(p) for p in parts]
    except ValueError:
        seconds = []
    if len(seconds) not in (1, 2) or not all(1.0 <= s <= 86_400.0 for s in seconds):
        raise InputError(f"{text!r} is no search time", where="--budget-search",
                         fix="give seconds, at least 1, such as 20, or 20/90 for levels 1 and 2 and for the others")
    return {level: seconds[0] if level < 3 else seconds[-1] for level in problems.LEVELS}


def _levers(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        return Config.model_validate({"version": 1, "levers": names}).levers
    except ValueError:
        raise InputError(f"{text!r} are no levers", where="--levers",
                         fix="give some of kernel,dispatch,launch,region") from None


def _devices(text: str) -> tuple[str, ...]:
    """Each once, `cpu` alone."""
    names = tuple(part.strip() for part in text.split(","))
    names = tuple("cuda:0" if name == "cuda" else name for name in names)
    known = all(n == "cpu" or (n.startswith("cuda:") and n[5:].isdigit()) for n in names)
    if not known or len(set(names)) < len(names) or ("cpu" in names and len(names) > 1):
        raise InputError(f"{text!r} are no devices", where="--device", fix="give cpu, or GPUs such as cuda:0,cuda:1")
    return names


def _ceilings(path: Path | None) -> dict[tuple[int, int], float] | None:
    return headroom.load(path) if path is not None else None


