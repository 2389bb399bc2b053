"""A run's result -> what is to be published."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kernelopt_bot import __version__
from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate
from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.edits import Edits
from kernelopt_bot.publish.files import check_files, read_folder
from kernelopt_bot.publish.key import content_key, with_key
from kernelopt_bot.publish.publication import Publication, Withdrawal
from kernelopt_bot.report import markdown
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.blocks import Block, Bullets, Code, Line, Mono, Paragraph, Report, Strong
from kernelopt_bot.report.facts import adopted, faster, tried
from kernelopt_bot.report.section import call_site
from kernelopt_bot.report.summary import environment_words
from kernelopt_bot.report.templates import environment
from kernelopt_bot.report.text import one_line, shorten
from kernelopt_bot.search.result import RunResult, TargetResult
from kernelopt_bot.search.sweep import Proposal
from kernelopt_bot.search.sweeping import ended
from kernelopt_bot.targets.wire import Wiring

_TITLE_LIMIT = 200  # GitHub takes 256 characters.
_REMOVAL = "perf: remove kernels that gain nothing any more for {targets}"
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
    sweep: str = "",
    base_may_move: bool = False,
    reviewers: tuple[str, ...] = (),
    author: str = "",
    whole_report: str = "",
    wiring: Wiring | None = None,
    looked: tuple[str, ...] = (),
    artifact_root: str = "",
    removed: Mapping[str, tuple[str, ...]] | None = None,
    proposals: Sequence[Proposal] = (),
    edits: Edits | None = None,
) -> Publication | None:
    """The branch, the files and the words; None if no target got faster and nothing is removed.

    `root` is the folder below which every result's `artifact` lies, and whose layout the repository gets. `subject` is
    the commit's first line and the title, with `{targets}` for the targets' names; `note` is a sentence about this pull
    request (for example that no checks start on it). `sweep` names the branch that a push or a schedule looked at.
    `base_may_move`: the publication still holds when `base_ref` has left `base_sha`; always so without a causing pull
    request. `reviewers` and `author`: see `Publication`. `whole_report` is the address of everything that the body has
    no room for. `wiring`: changes of call sites, made from the files of `base_sha`. `looked`, `artifact_root`: see
    `Publication`. `removed`: artifact -> its files, which go away; `proposals` say why. `edits`: of Triton kernels,
    proved against `base_sha`. Raises InputError for files that may not be published.
    """
    removed, edits = removed or {}, edits or Edits()
    results = tuple(r for r in faster(run) if r.artifact or r.target.name in edits.targets)
    if not (results or removed):
        return None
    files: dict[str, bytes] = {}
    for r in results:
        files |= read_folder(root, r.artifact) if r.artifact else {}
    wiring = wiring or Wiring({}, ())
    if clash := sorted(files.keys() & wiring.files.keys()):
        raise InputError("a call site lies in an artifact", where=clash[0][:200], fix="correct `wire` of this target")
    files |= wiring.files
    if both := sorted(files.keys() & edits.files.keys()):
        raise InputError("a file is to be edited for two reasons", where=both[0][:200],
                         fix="move the Triton kernel out of the file that `wire` names")
    files |= edits.files
    check_files(files)
    gone_files = tuple(sorted(path for paths in removed.values() for path in paths))
    if both := sorted(files.keys() & set(gone_files)):
        raise InputError("a file is both written and removed", where=both[0][:200], fix="run again")
    subject = subject if results else _REMOVAL
    # Not str.format: a target's name is data, and the configuration has checked the only placeholder.
    names = _defused(one_line(", ".join([r.target.name for r in results] or [a.rpartition("/")[2] for a in removed])))
    title = shorten(subject.replace("{targets}", names).replace("{{", "{").replace("}}", "}"), _TITLE_LIMIT)
    why = [p for p in proposals if p.artifact in removed or p.artifact in {r.artifact for r in results}]
    lines = [*(_one_line_of(r) for r in results), *(_defused(one_line(f"{p.artifact}: {_words(p)}")) for p in why)]
    message = environment("publish").get_template("commit.txt.j2").render(
        subject=title, lines=lines, gates=bool(results), folders=any(r.artifact for r in results))
    return Publication(
        branch=branch_name(run, branch_prefix, sweep=sweep),
        base_ref=base_ref,
        base_sha=base_sha,
        title=title,
        body=_body(results, report, note, whole_report, wiring, (_proposed(why), tuple(removed)), edits),
        commit_message=with_key(message, content_key(results, gone_files, edits.before), edits.targets),
        files=files,
        labels=labels,
        draft=draft,
        replaced=tuple(f"{r.artifact}/kernels" for r in results if r.artifact),
        removed=gone_files,
        looked=looked,
        artifact_root=artifact_root,
        source=None if base_may_move or sweep else run.pull_request,
        reviewers=reviewers,
        author=author,
    )


def gone(run: RunResult, *, branch_prefix: str = "kernelopt-", sweep: str = "", artifact_root: str = "",
         searched: Collection[str] | None = None) -> Withdrawal | None:
    """For a run whose `publication` is None: the end of what an earlier one offered from the same source.

    `searched`: the targets whose search came to its end, of a run that came out of a report; None: as the results say.
    None where the run proves nothing: it looked at no target, was ended early, or a target failed or was not searched
    to its end. Without an open pull request on that branch a withdrawal does nothing.
    """
    whole = run.results and not run.stopped and not faster(run)
    if not whole or not all(ended(r) and (searched is None or r.target.name in searched) for r in run.results):
        return None
    names = one_line(", ".join(r.target.name for r in run.results))
    detail = f"At {run.head_sha[:12] or 'the present head'} no candidate passed all gates for {names}."
    looked = tuple(r.target.name for r in run.results) if sweep else ()
    return Withdrawal(branch_name(run, branch_prefix, sweep=sweep), "gain gone", shorten(detail, 500), looked,
                      artifact_root)


def branch_name(run: RunResult, prefix: str = "kernelopt-", *, sweep: str = "") -> str:
    """One flat branch a pull request, or a branch that is swept; a run by hand has one a commit."""
    if sweep:
        return f"{prefix}sweep-{_flat(sweep)}"
    return f"{prefix}pr-{run.pull_request}" if run.pull_request is not None else f"{prefix}{run.head_sha[:12] or 'run'}"


def _flat(branch: str) -> str:
    """A part of a branch's name without slashes; what had to change gets a hash, so that no two branches share one."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", branch)[:100]
    return plain if plain == branch else f"{plain}-{hashlib.sha256(branch.encode()).hexdigest()[:8]}"


def _defused(text: str) -> str:
    """Plain text in which GitHub sees no mention and no reference to an issue, for titles and commit messages."""
    return re.sub(r"([@#]|GH-(?=\d))", "\\1\u2060", text, flags=re.IGNORECASE)


def _words(p: Proposal) -> str:
    what = "replaced by a new one" if p.action == "mend" else "removed, since a new search found no gain"
    return f"{p.state} ({shorten(one_line(p.reason), 300)}); {what}"


def _proposed(proposals: Sequence[Proposal]) -> tuple[Block, ...]:
    return tuple(Paragraph((Mono(p.artifact), f": {_words(p)}.")) for p in proposals)


def _body(results: tuple[TargetResult, ...], report: Report, note: str, whole_report: str, wiring: Wiring,
          swept: tuple[tuple[Block, ...], tuple[str, ...]], edits: Edits) -> str:
    template = environment("publish").get_template("pull_request.md.j2")
    models = [r for r in results if r.artifact]
    values: Mapping[str, str] = {
        "first_screen": _markdown(tuple(_headline(r) for r in results)),
        "folders": markdown.inline(_folders([r.artifact for r in models])),
        "edited": markdown.inline(_folders(sorted(edits.files))),
        "many": "s" if len(edits.made) > 1 else "",
        "patches": _markdown(tuple(Code(e.patch, "diff") for e in edits.made)),
        "proposed": _markdown(swept[0]),
        "removed": markdown.inline(_folders(swept[1])),
        "imports": _markdown(tuple(
            Code(f"from {a.replace('/', '.')} import optimize", "python") for a in swept[1]
            if a.rpartition("/")[2] not in wiring.wired)),
        "wired_files": markdown.inline(_folders(sorted(wiring.files))),
        "call_sites": _markdown(_call_sites(
            [r for r in models if r.target.name not in wiring.wired])),
        "wired": _markdown(_wired(wiring)),
        "repository_note": markdown.inline((note,)) if note else "",
        "whole_report": whole_report if re.fullmatch(r"https?://[^\s<>()]+", whole_report) else "",
        "release": __version__,
        "changes": markdown.blocks_to_markdown((Bullets(tuple(_change(r) for r in models)),)) if models else "",
    }
    frame = template.render(report="", **values)
    return template.render(report=markdown.render(report, limit=markdown.BODY_LIMIT - len(frame)), **values)


def _markdown(blocks: tuple[Block, ...]) -> str:
    return markdown.blocks_to_markdown(blocks) if blocks else ""


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
            f": {n.milliseconds(c.baseline_ms)} before, {n.milliseconds(c.candidate_ms)} after, {n.conditions(c)}, "
            f"{c.pairs} interleaved pairs, after {tried(r)} candidates{_on(r)}. ",
            f"The same code against itself (A/A): {n.ratio(r.noise.speedup)} "
            f"({n.interval(r.noise.low, r.noise.high)})." if r.noise else "No A/A control was measured.",
        )
    )


def _on(r: TargetResult) -> str:
    known = environment_words(r.environment)
    return f", on {shorten(known, 200)}" if known else ""


def _change(r: TargetResult) -> Line:
    """What the adopted pieces make different from `torch.compile`."""
    spans: list[str | Mono | Strong] = [Mono(r.target.name), ": "]
    options = {k: v for t in adopted(r) if isinstance(t.candidate, OptionsCandidate)
               for k, v in t.candidate.options.items()}
    kernels = [t.candidate for t in adopted(r) if isinstance(t.candidate, KernelCandidate)]
    if options:
        spans.append(f"compiler option{'' if len(options) == 1 else 's'} ")
        for i, (key, value) in enumerate(sorted(options.items())):
            spans += [*([", "] if i else []), Mono(f"{key}={value}")]
    if kernels:
        count = sum(len(k.steps) for k in kernels)
        spans.append(f"{' and ' if options else ''}{count} of the compiler's kernels replaced by {len(kernels)} in ")
        spans.append(Mono(f"{r.artifact}/kernels"))
    return tuple(spans)


def _one_line_of(r: TargetResult) -> str:
    c = r.headline
    assert c is not None, "`faster` only lets results with a confirmed figure through"
    return _defused(one_line(f"{r.target.name}: {n.gain(c)} against {c.baseline} ({n.conditions(c)})"))


def _folders(artifacts: Sequence[str]) -> Line:
    spans: list[str | Mono] = []
    for artifact in artifacts:
        spans += [", ", Mono(artifact)] if spans else [Mono(artifact)]
    return tuple(spans)


def _call_sites(results: Sequence[TargetResult]) -> tuple[Block, ...]:
    return tuple(Code(lines, "python") for r in results if (lines := call_site(r.artifact)))


def _wired(wiring: Wiring) -> tuple[Block, ...]:
    return tuple(Paragraph((Mono(target), f": {shorten(one_line(words), 300)}.")) for target, words in wiring.said)
