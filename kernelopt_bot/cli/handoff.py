"""`kernelopt handoff export|import|status`: questions to brains as files, and their answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from kernelopt_bot.agents import handoff, replay
from kernelopt_bot.agents.brain import Exchange
from kernelopt_bot.errors import InputError
from kernelopt_bot.process import redact

OPEN = ("pending", "refused", "truncated", "empty", "too long", "unavailable", "spent")


@click.group("handoff")
def command() -> None:
    """Have a search's questions answered by anyone who can read and write files.

    `kernelopt optimize MODEL --brain handoff --handoff DIR` writes what it would ask, and goes on with the answers
    that are there when it is run again.
    """


@command.command("export")
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--all", "every", is_flag=True, help="Answered questions too, with their answers.")
def export(run: Path, folder: Path, every: bool) -> int:
    """Write the questions that RUN (a run's folder) left without an answer into DIR."""
    records = [run] if run.is_file() else sorted(run.rglob(replay.NAME))
    written = 0
    for record in records:
        for exchange in {e.key: e for e in replay.load(record)}.values():
            if every or exchange.outcome in OPEN:
                handoff.write(folder / record.parent.name, exchange)
                written += 1
    if not records:
        raise InputError("the run has no record of exchanges", where=str(run), fix="name a run that asked a brain")
    click.echo(f"{written} questions in {folder}")
    return 0


@command.command("import")
@click.argument("answers", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
def import_(answers: Path, folder: Path) -> int:
    """Put answers into DIR that come as JSON Lines: `{"target": ..., "key": ..., "text": ...}` (one target: no need to
    name it). Exit 1 if one of them does not fit; it is put there all the same, for a repair."""
    targets = {f.name: f for f in handoff.folders(folder)}
    wrong = 0
    lines = [line for line in answers.read_text(encoding="utf-8").splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        target, key, text = _line(line, f"{answers.name}:{number}", list(targets))
        known = {e.exchange.key: e.exchange for e in handoff.entries(targets[target])}
        if key not in known:
            raise InputError("there is no such question", where=f"{answers.name}:{number}",
                             fix="take the key from the name of the question's file")
        for ending in handoff.ANSWERS:
            (targets[target] / f"{key}{ending}").unlink(missing_ok=True)
        handoff.write(targets[target], replace(known[key], outcome="answered", text=text))
        faults = handoff.faults(known[key].role, text)
        wrong += bool(faults)
        click.echo(f"{target}/{key}: {redact('; '.join(faults)) if faults else 'fits'}")
    return 1 if wrong else 0


@command.command("status")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the questions as JSON.")
def status(folder: Path, as_json: bool) -> int:
    """What is open, what is answered, and which answers do not fit."""
    found = [(f.name, entry) for f in handoff.folders(folder) for entry in handoff.entries(f)]
    if as_json:
        click.echo(json.dumps([{"target": name, "key": e.exchange.key, "role": e.exchange.role,
                                "state": _state(e), "faults": list(e.faults)} for name, e in found], indent=1))
        return 0
    table = Table("target", "question", "role", "state", box=None)
    for name, entry in found:
        table.add_row(name, entry.exchange.key, entry.exchange.role, redact(
            "; ".join([_state(entry), *entry.faults])))
    console = Console()
    console.print(table)
    left = sum(e.exchange.outcome == "pending" for _, e in found)
    console.print(f"{len(found)} questions, {left} open, {sum(bool(e.faults) for _, e in found)} answers do not fit")
    return 0


def _state(entry: handoff.Entry) -> str:
    exchange: Exchange = entry.exchange
    return "open" if exchange.outcome == "pending" else "does not fit" if entry.faults else "answered"


def _line(line: str, where: str, targets: list[str]) -> tuple[str, str, str]:
    try:
        data = json.loads(line)
        target = data.get("target") or (targets[0] if len(targets) == 1 else "")
        key, text = data["key"], data["text"]
    except (ValueError, KeyError, AttributeError) as e:
        raise InputError("the line is no answer", where=where, fix='write {"target": ..., "key": ..., "text": ...}'
                         ) from e
    if target not in targets or not isinstance(key, str) or not isinstance(text, str):
        raise InputError("the line names no target of this folder", where=where, fix=f"one of: {', '.join(targets)}")
    return target, key, text
