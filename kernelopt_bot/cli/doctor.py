"""`kernelopt doctor`: what this machine can do, which jail works, what is missing and how to get it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernelopt_bot import config
from kernelopt_bot.process import redact
from kernelopt_bot.sandbox.machine import Finding, examine, possible

MARKS = {"ok": "[green]ok[/]", "note": "[cyan]note[/]", "missing": "[yellow]missing[/]", "blocking": "[red]blocking[/]"}


def show(findings: list[Finding], console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = escape(redact(finding.text))
        if finding.fix:
            text += f"\n[dim]what to do: {escape(redact(finding.fix))}[/]"
        table.add_row(MARKS[finding.level], finding.topic, text)
    console.print(table)
    blocking = [f.topic for f in findings if f.level == "blocking"]
    if blocking:
        console.print(f"\nA run is not possible: {', '.join(blocking)}.")
    else:
        console.print("\nA run is possible.")


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), default=Path("."),
              help="Folder with .kernelopt.yml. Default is the current one.")
@click.option("--python", default="", help="Interpreter to examine instead of environment.python.")
@click.option("--sandbox", type=click.Choice(["auto", "docker", "bubblewrap", "landlock", "process"]), default=None,
              help="Jail to ask for instead of the configured one.")
@click.option("--device", default="", help="Device to try in the jails instead of the configured one.")
def command(as_json: bool, root: Path, python: str, sandbox: str | None, device: str) -> int:
    """Say what this machine can do and what is missing. Exits with 0 if a run is possible, else with 1."""
    settings = config.load(root)
    wanted = python or settings.environment.python
    if wanted and "/" in wanted and not Path(wanted).is_absolute():
        wanted = str((root / wanted).absolute())
    findings = examine(
        python=wanted, sandbox=sandbox or settings.sandbox, device=device or settings.device
    )
    if as_json:
        rows = [{name: redact(text) for name, text in dataclasses.asdict(f).items()} for f in findings]
        click.echo(json.dumps({"schema": 1, "possible": possible(findings), "findings": rows}, indent=2))
    else:
        show(findings, Console())
    return 0 if possible(findings) else 1
