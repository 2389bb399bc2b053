"""`kernelopt trace`: the tree of a run's candidates, as text and as one page."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from kernelopt_bot.report.write import write_whole
from kernelopt_bot.trace import machine, page, text
from kernelopt_bot.trace.load import load

MOST = 12
"""Candidates of one place that the text shows."""


@click.command("trace")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="Also write one self-contained page here: the search tree, rooflines, exchanges with the model.")
@click.option("--all", "everything", is_flag=True, help="Show every candidate.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, of every candidate, instead of the text.")
def command(run: Path, html: Path | None, everything: bool, as_json: bool) -> None:
    """Show what was tried in the run whose output folder is RUN, by whom, and how each gate answered."""
    trace = load(run)
    if as_json:
        click.echo(json.dumps(machine.to_json(trace), indent=1))
    else:
        text.show(trace, Console(), most=10**9 if everything else MOST)
    if html is not None:
        html.absolute().parent.mkdir(parents=True, exist_ok=True)
        write_whole(html, page.render(trace).encode())
        click.echo(f"page: {html}", err=as_json)
