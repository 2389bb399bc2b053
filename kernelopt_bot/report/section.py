"""The part of the report about one target, in the order in which a sceptical reader asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate
from kernelopt_bot.gates.model import Precision
from kernelopt_bot.gates.verdict import GateName, Status, Verdict
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report import tables
from kernelopt_bot.report.blocks import Block, Bullets, Code, Details, Heading, Line, Mono, Notice, Paragraph, Verdicts
from kernelopt_bot.report.facts import adopted, furthest, precision, tried, verdicts_by_gate
from kernelopt_bot.report.phrases import phrase
from kernelopt_bot.report.text import shorten
from kernelopt_bot.search.result import TargetResult, Trial
from kernelopt_bot.targets.triton_kernels import TritonTarget

_NOISY = 0.06  # An A/A interval wider than twice the default minimum gain (3%) hides every gain the gate would take.
_SHOWN_CANDIDATES = 3


def section(result: TargetResult, pictures: tuple[Block, ...] = ()) -> tuple[Block, ...]:
    """Every field may be empty; what is missing is said or left out, never invented."""
    return tuple(_blocks(result, pictures))


def call_site(artifact: str) -> str:
    """The two lines that wire the artifact in; '' if the folder is no importable path."""
    parts = PurePosixPath(artifact).parts
    if not parts or not all(p.isidentifier() for p in parts):
        return ""
    return f"from {'.'.join(parts)} import optimize\nmodel = optimize(model)"


def _blocks(r: TargetResult, pictures: tuple[Block, ...]) -> Iterator[Block]:
    heading = "triton_target" if isinstance(r.target, TritonTarget) else "target"
    yield Heading(2, phrase(heading, name=r.target.name, entry=r.target.entry, path=r.target.path))
    if r.error:
        yield Notice("warning", phrase("error", error=""))
        yield Code(shorten(r.error, 4000))
    if r.unreached:
        yield Notice("warning", phrase("budget", limit=r.limit, levers=", ".join(r.unreached), nothing=not r.trials))
    if r.agents:
        yield Bullets(tuple((line,) for line in r.agents))
    yield from _headline(r)
    table = tables.baselines(r)
    if table.rows:
        yield Heading(3, ("Against each baseline",))
        yield Paragraph(phrase("baselines"))
        yield table
    yield from pictures
    yield from _levers(r)
    yield from _kernels(r)
    yield from _verdicts(r)
    yield from _tried(r)
    yield from _first_call(r)
    yield from _scope(r)
    yield from _environment(r)


def _headline(r: TargetResult) -> Iterator[Block]:
    pieces = adopted(r)
    if pieces and r.headline is not None:
        c = r.headline
        verdict = "faster" if c.low > 1.0 else "slower" if c.high < 1.0 else "no different, within the interval,"
        yield Paragraph(
            phrase(
                "headline",
                gain=n.ratio(c.speedup),
                verdict=verdict,
                baseline=c.baseline,
                interval=n.interval(c.low, c.high),
                before=n.milliseconds(c.baseline_ms),
                after=n.milliseconds(c.candidate_ms),
                conditions=n.conditions(c),
                pairs=c.pairs,
                tried=tried(r),
            )
        )
    elif pieces:
        yield Notice("warning", phrase("unconfirmed", adopted=len(pieces)))
    elif not r.error or r.trials:
        nothing = "triton_nothing" if isinstance(r.target, TritonTarget) else "nothing"
        yield Notice("note", phrase(nothing, tried=tried(r)))
    if r.noise is not None:
        yield Paragraph(phrase("noise", gain=n.gain(r.noise), pairs=r.noise.pairs))
        if r.noise.high - r.noise.low > _NOISY:
            yield Notice("warning", phrase("noisy", width=n.percent(r.noise.high - r.noise.low)))
    elif r.program is not None:
        yield Paragraph(phrase("noise_unknown"))


def _levers(r: TargetResult) -> Iterator[Block]:
    if r.levers:
        yield Heading(3, ("Gain per lever",))
        yield Paragraph(phrase("triton_levers" if isinstance(r.target, TritonTarget) else "levers"))
        yield tables.levers(r)


def _kernels(r: TargetResult) -> Iterator[Block]:
    table = tables.kernels(r)
    if r.profile is None or not table.rows:
        return
    roofs = r.profile.roofs
    yield Heading(3, ("Kernels",))
    yield Paragraph(
        phrase("kernels", bandwidth=f"{n.significant(roofs.copy_bytes_per_s / 1e9)} GB/s", source=roofs.source)
    )
    yield table
    if r.profile.call_us is not None and r.profile.device_us is not None and r.profile.launch_gap is not None:
        crowded = r.profile.device_us > r.profile.call_us
        yield Paragraph(
            phrase(
                "steps_exceed" if crowded else "launch_gap",
                call=n.microseconds(r.profile.call_us),
                device=n.microseconds(r.profile.device_us),
                gap=n.percent(r.profile.launch_gap),
            )
        )


def _verdicts(r: TargetResult) -> Iterator[Block]:
    pieces = adopted(r)
    if not pieces:
        return
    yield Heading(3, ("Verdicts of the gates",))
    yield Paragraph(phrase("verdicts"))
    rows = [(_label(t), tuple(v for v, _ in verdicts_by_gate(r, t))) for t in pieces]
    if r.stitched:
        rows.append((("the whole",), (*_each(r), *r.stitched)))
    yield Verdicts(tuple(rows))
    if (found := precision(r)) is not None:
        yield Paragraph(_precise(found))
    for t in pieces:
        yield Details(("What changed: ", *_label(t)), _change(t))


def _precise(p: Precision) -> Line:
    counts = {"draws": p.draws, "inits": p.inits}
    if p.bit_equal:
        return phrase("bit_equal", **counts)
    if p.ratio is None:
        return phrase("no_baseline_error", **counts)
    return phrase("error_ratio", **counts, ratio=n.ratio(p.ratio), output=p.output,
                  candidate=n.significant(p.rmse_candidate, 3), baseline=n.significant(p.rmse_baseline, 3))


def _each(r: TargetResult) -> tuple[Verdict, ...]:
    answered = {v.gate for v in r.stitched}
    gates: tuple[GateName, ...] = ("static", "correctness")
    return tuple(Verdict(g, Status.NOT_APPLICABLE, "decided piece by piece") for g in gates if g not in answered)


def _change(t: Trial) -> tuple[Block, ...]:
    c = t.candidate
    blocks: list[Block] = []
    if c.rationale:
        blocks.append(Paragraph((c.rationale,)))
    if t.step_speedup is not None:
        blocks.append(
            Paragraph(
                (
                    f"The replaced steps alone: {n.ratio(t.step_speedup)} (device time, "
                    f"{n.microseconds(t.before_us)} before, {n.microseconds(t.after_us)} after; diagnostic, no "
                    "interval).",
                )
            )
        )
    if isinstance(c, KernelCandidate):
        blocks.append(Code(c.source, "python"))
    else:
        blocks.append(tables.pairs(sorted(c.options.items()), "Inductor option", "value"))
    return tuple(blocks)


def _tried(r: TargetResult) -> Iterator[Block]:
    if not r.trials:
        return
    count = len(adopted(r))
    yield Heading(3, ("What was tried",))
    yield Paragraph(phrase("tried", tried=tried(r), adopted=count, rejected=tried(r) - count, recorded=len(r.trials)))
    yield tables.tried_by_gate(r)
    if count < len(r.trials):
        yield Details(("The rejected candidates that came furthest",), (tables.rejected(r),))
    shown = [t for t in furthest(r.trials) if isinstance(t.candidate, KernelCandidate)][:_SHOWN_CANDIDATES]
    if shown and not count:
        yield Details(
            ("Verdicts of the kernel candidates that came furthest",),
            (Verdicts(tuple((_label(t), tuple(v for v, _ in verdicts_by_gate(r, t))) for t in shown)),),
        )


def _first_call(r: TargetResult) -> Iterator[Block]:
    if r.first_call is not None:
        yield Heading(3, ("First call",))
        yield Paragraph(phrase("first_call"))
        yield tables.first_call(r.first_call)
    if r.peak_memory:
        yield Details(("Peak memory",), (tables.memory(r),))


def _scope(r: TargetResult) -> Iterator[Block]:
    if r.program is None and not r.covered:
        return
    yield Heading(3, ("What this covers",))
    items: list[Line] = [("Mode: ", f"{r.target.mode} only; training keeps the compiler's code.")]
    if isinstance(r.target, TritonTarget):
        items = [("Baseline: ", "your kernel, with the configuration that your code gives it.")]
        if r.edits:
            items.append(("Changed in place: ", *_joined(tuple(sorted(r.edits)))))
    if r.covered:
        items.append(("Verified inputs: ", *_joined(r.covered)))
    items.append(("Origin of the inputs: ", *_origin(r)))
    yield Bullets(tuple(items))
    if not adopted(r) or not r.artifact:
        return
    yield Paragraph(phrase("not_wired"))
    lines = call_site(r.artifact)
    yield (
        Code(lines, "python")
        if lines
        else Paragraph(("Import ", Mono("optimize"), " from the folder ", Mono(r.artifact)))
    )
    yield Paragraph(phrase("switch_off", folder=r.artifact))


def _environment(r: TargetResult) -> Iterator[Block]:
    blocks: list[Block] = []
    if r.environment:
        blocks.append(tables.pairs(tables.flat(r.environment), "environment", "value"))
    if r.spent:
        blocks.append(tables.pairs(sorted((k, n.significant(v)) for k, v in r.spent.items()), "spent", "value"))
    if r.secret:
        blocks.append(Paragraph(phrase("secret", secret=r.secret)))
    if blocks:
        yield Details(("Environment, time spent and seed secret",), tuple(blocks))


def _origin(r: TargetResult) -> Line:
    where = {
        "convention": "the file's own convention",
        "config": "the configuration file",
        "command": "the command line",
    }
    if r.inputs_origin:
        return (Mono(r.inputs_origin),)
    return (Mono(r.target.inputs), f" ({where[r.target.origin]})")


def _label(t: Trial) -> Line:
    c = t.candidate
    kind = "options" if isinstance(c, OptionsCandidate) else "kernel"
    return (Mono(c.id), f" ({kind}, lever {c.lever}, {shorten(c.technique, 80)})")


def _joined(items: tuple[str, ...]) -> Iterator[str | Mono]:
    for i, item in enumerate(items):
        if i:
            yield ", "
        yield Mono(item)
