"""What a finished search becomes: files, the terminal, the step's summary and outputs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from kernelopt_bot.cli import phases
from kernelopt_bot.publish.publication import Published
from kernelopt_bot.report.blocks import Report
from kernelopt_bot.report.facts import adopted
from kernelopt_bot.report.machine import render_json
from kernelopt_bot.report.terminal import print_report
from kernelopt_bot.report.write import write, write_summary
from kernelopt_bot.search.result import RunResult

INTERRUPTED = 130


def run_folder(output: Path) -> Path:
    """A new folder for this run's trials and artifacts."""
    return output.absolute() / "runs" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def write_files(report: Report, output: Path) -> None:
    """report.md, report.json, charts, and the step's summary where there is one. Raises UserError."""
    write(report, output)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        write_summary(report, Path(summary))


def show(report: Report, output: Path, *, as_json: bool) -> None:
    if as_json:
        click.echo(render_json(report.data))
        return
    console = Console()
    print_report(report, console)
    console.print(f"\nreport: {output / 'report.md'}\ndata:   {output / 'report.json'}", highlight=False, markup=False,
                  soft_wrap=True)


def values(run: RunResult, published: Published, report: Path | None) -> dict[str, object]:
    """The action's outputs; `report` is where report.json is, if anywhere."""
    headlines = [r.headline.speedup for r in run.results if r.headline]
    return {
        "operation": published.operation, "branch": published.branch, "head-sha": published.head_sha,
        "pull-request-number": published.number or "", "pull-request-url": published.url,
        "adopted": sum(len(adopted(r)) for r in run.results),
        "speedup": f"{max(headlines):.4f}" if headlines else "", "report": report.absolute() if report else "",
        "gates": gates(run),
    }


def gates(run: RunResult) -> str:
    """`target: model pass, performance pass; ...`, of the whole of each target with something adopted."""
    return "; ".join(f"{r.target.name}: " + ", ".join(f"{v.gate} {v.status.value}" for v in r.stitched)
                     for r in run.results if adopted(r))[:2000]


def write_outputs(run: RunResult, published: Published, output: Path) -> None:
    """The action's outputs, where GITHUB_OUTPUT names a file. Values are one line each."""
    phases.outputs(values(run, published, output / "report.json"))


def said(published: Published) -> str:
    """One line for the terminal."""
    if published.operation == "reported":
        return f"not published: {published.reason}"
    number = f" pull request #{published.number}" if published.number else ""
    where = f"branch {published.branch} at {published.head_sha[:12]} {published.url}".rstrip()
    return f"{published.operation}:{number} {where}"


def exit_code(run: RunResult, *, interrupted: bool, limited: bool = False) -> int:
    """0 if every target was handled; 2 if all that went wrong is in the models themselves, else 1; 130 after an
    interruption. `limited`: what ended the run early was a limit, which is no failure."""
    if interrupted:
        return INTERRUPTED
    failed = [r for r in run.results if r.error]
    stopped = run.stopped and not limited
    if failed and not stopped and all(r.bad_input for r in failed):
        return 2
    return 1 if stopped or failed else 0
