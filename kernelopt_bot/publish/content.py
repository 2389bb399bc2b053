"""A run's result -> what is to be published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernelopt_bot import __version__
from kernelopt_bot.publish.files import check_files, read_folder
from kernelopt_bot.publish.key import content_key, with_key
from kernelopt_bot.publish.publication import Publication
from kernelopt_bot.report import markdown
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.blocks import Block, Code, Line, Mono, Paragraph, Report, Strong
from kernelopt_bot.report.facts import faster
from kernelopt_bot.report.section import call_site
from kernelopt_bot.report.templates import environment
from kernelopt_bot.report.text import one_line, shorten
from kernelopt_bot.search.result import RunResult, TargetResult

_TITLE_LIMIT = 200  # GitHub takes 256 characters.
_SUBJECT = "perf: verified faster kernels for {targets}"


def publication(
    run: RunResult,
    report: Report,
    root: Path,
    *,
    base_ref: str,
    base_sha: str,
    branch_prefix: str = "kernelopt-",
    subject: str = _SUBJECT,
    labels: tuple[str, ...] = (),
    draft: bool = False,
    note: str = "",
) -> Publication | None:
    """The branch, the files and the words; None if no target got faster.

    `root` is the folder below which every result's `artifact` lies, and whose layout the repository gets. `subject` is
    the commit's first line and the title, with `{targets}` for the targets' names; `note` is a sentence about this pull
    request (for example that no checks start on it). Raises InputError for files that may not be published.
    """
    results = faster(run)
    results = tuple(r for r in results if r.artifact)
    if not results:
        return None
    files: dict[str, bytes] = {}
    for r in results:
        files |= read_folder(root, r.artifact)
    check_files(files)
    # Not str.format: a target's name is data, and the configuration has checked the only placeholder.
    names = one_line(", ".join(r.target.name for r in results))
    title = shorten(subject.replace("{targets}", names).replace("{{", "{").replace("}}", "}"), _TITLE_LIMIT)
    lines = [_one_line_of(r) for r in results]
    message = environment("publish").get_template("commit.txt.j2").render(subject=title, lines=lines)
    return Publication(
        branch=branch_name(run, branch_prefix),
        base_ref=base_ref,
        base_sha=base_sha,
        title=title,
        body=_body(results, report, note),
        commit_message=with_key(message, content_key(results)),
        files=files,
        labels=labels,
        draft=draft,
        replaced=tuple(f"{r.artifact}/kernels" for r in results),
    )


def branch_name(run: RunResult, prefix: str = "kernelopt-") -> str:
    """One flat branch a pull request; a run by hand has one a commit."""
    return f"{prefix}pr-{run.pull_request}" if run.pull_request is not None else f"{prefix}{run.head_sha[:12] or 'run'}"


def _body(results: tuple[TargetResult, ...], report: Report, note: str) -> str:
    template = environment("publish").get_template("pull_request.md.j2")
    values: Mapping[str, str] = {
        "first_screen": markdown.blocks_to_markdown(tuple(_headline(r) for r in results)),
        "folders": markdown.inline(_folders(results)),
        "call_sites": markdown.blocks_to_markdown(tuple(_call_sites(results))),
        "repository_note": markdown.inline((note,)) if note else "",
        "release": __version__,
    }
    frame = template.render(report="", **values)
    return template.render(report=markdown.render(report, limit=markdown.BODY_LIMIT - len(frame)), **values)


def _headline(r: TargetResult) -> Block:
    c = r.headline
    assert c is not None, "`faster` only lets results with a confirmed figure through"
    return Paragraph(
        (
            Mono(r.target.name),
            ": ",
            Strong(f"{n.ratio(c.speedup)}"),
            f" (95% interval {n.interval(c.low, c.high)}) against the best applicable baseline, ",
            Mono(c.baseline),
            f": {n.milliseconds(c.baseline_ms)} before, {n.milliseconds(c.candidate_ms)} after, {n.conditions(c)}.",
        )
    )


def _one_line_of(r: TargetResult) -> str:
    c = r.headline
    assert c is not None, "`faster` only lets results with a confirmed figure through"
    return one_line(f"{r.target.name}: {n.gain(c)} against {c.baseline} ({n.conditions(c)})")


def _folders(results: tuple[TargetResult, ...]) -> Line:
    spans: list[str | Mono] = []
    for r in results:
        spans += [", ", Mono(r.artifact)] if spans else [Mono(r.artifact)]
    return tuple(spans)


def _call_sites(results: tuple[TargetResult, ...]) -> list[Block]:
    return [Code(lines, "python") for r in results if (lines := call_site(r.artifact))]
