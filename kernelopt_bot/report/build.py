"""A run's result -> its report."""

from __future__ import annotations

from kernelopt_bot.report import charts, tables
from kernelopt_bot.report.blocks import (
    Block,
    Bullets,
    Code,
    Details,
    Heading,
    Line,
    Mono,
    Notice,
    Paragraph,
    Picture,
    Report,
)
from kernelopt_bot.report.facts import faster
from kernelopt_bot.report.machine import machine_data
from kernelopt_bot.report.phrases import phrase
from kernelopt_bot.report.section import section
from kernelopt_bot.report.text import shorten
from kernelopt_bot.search.result import RunResult


def build(run: RunResult) -> Report:
    """The whole report. Renders any result, also one whose targets all failed or that has no targets at all."""
    title = phrase("title_stopped" if run.stopped else "title", faster=len(faster(run)), targets=len(run.results))
    blocks: list[Block] = [Heading(1, title)]
    if run.stopped:
        blocks.append(Notice("warning", phrase("stopped", reason=run.stopped.rstrip("."))))
    if not run.results:
        blocks.append(Notice("note", phrase("no_targets")))
    if len(run.results) > 1:
        blocks.append(tables.overview(run))
    files: dict[str, bytes] = {}
    for result in run.results:
        pictures = []
        for chart in charts.charts(result):
            names = [f"{result.target.name}-{chart.name}-{mode}.svg" for mode in ("light", "dark")]
            files |= dict(zip(names, (chart.light, chart.dark), strict=True))
            pictures.append(Picture(names[0], names[1], chart.alternative, chart.text))
        blocks += section(result, tuple(pictures))
    blocks += _closing(run)
    return Report("".join(s if isinstance(s, str) else s.text for s in title), tuple(blocks), machine_data(run), files)


def _closing(run: RunResult) -> list[Block]:
    blocks: list[Block] = [Heading(2, ("This run",))]
    facts: list[Line] = []
    if run.repository:
        facts.append(("Repository: ", Mono(run.repository)))
    if run.pull_request is not None:
        facts.append((f"Pull request: {run.pull_request}",))
    if run.head_sha:
        facts.append(("Optimised commit: ", Mono(run.head_sha)))
    if run.base_sha:
        facts.append(("Compared with: ", Mono(run.base_sha)))
    if facts:
        blocks.append(Bullets(tuple(facts)))
    if run.skipped:
        items = tuple((Mono(shorten(what, 200)), f": {shorten(why, 400)}") for what, why in run.skipped)
        blocks.append(Details((f"Passed over ({len(items)})",), (Bullets(items),)))
    blocks += [Paragraph(phrase("repeat")), Code(run.command, "shell"), Paragraph(phrase("everything"))]
    return blocks
