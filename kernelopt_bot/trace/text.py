"""A trace for a terminal: the tree of candidates, what each role gave, what it cost."""

from __future__ import annotations

from collections.abc import Iterator

import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.process import redact
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.text import one_line, shorten
from kernelopt_bot.trace.facts import Node, TargetTrace, Trace, yields

MARKS = {Status.PASS: ("✓", "green"), Status.FAIL: ("✗", "red"), Status.NOT_APPLICABLE: ("~", "cyan"),
         Status.NOT_MEASURED: ("?", "yellow")}
REASON = 160
"""Characters of a gate's reason."""


def show(trace: Trace, console: Console, *, most: int) -> None:
    """`most`: candidates of each place that are shown, adopted ones always."""
    for target in trace.targets:
        console.print(_tree(target, most))
        for part in (_yields(target), _workers(target)):
            if part is not None:
                console.print(part)
    for line in costs(trace):
        console.print(Text(line))


def costs(trace: Trace) -> Iterator[str]:
    """What the model cost, in sentences."""
    s = trace.spending
    if s is None:
        return
    money = f", {s.settled.usd:.4f} US dollars" if s.settled.nano_usd or not s.unpriced else ""
    unpriced = " (some calls have no price)" if s.unpriced and money else ""
    yield (f"Model: {s.settled.calls} calls, {s.settled.input} tokens in, {s.settled.output} out{money}{unpriced}, "
           f"{n.seconds(s.wall_s)} under way.")
    if s.reserved.calls:
        yield f"Reserved and not settled: {s.reserved.calls} calls, at most {s.reserved.tokens} tokens."


def step(node: Node) -> str:
    """`1.234x (12.3 µs to 10.0 µs)` of the replaced steps alone; '' where nothing was timed."""
    t = node.trial
    times = f" ({n.microseconds(t.before_us)} to {n.microseconds(t.after_us)})" if (
        t.before_us is not None and t.after_us is not None) else ""
    return f"{n.ratio(t.step_speedup)}{times}" if t.step_speedup is not None else times.strip(" ()")


def reason(node: Node) -> str:
    """Why it went no further, or what was noted of it."""
    stop = node.trial.stopped_by
    said = stop.reason if stop is not None and stop.reason else node.trial.note
    return shorten(one_line(redact(said)), REASON)


def _tree(target: TargetTrace, most: int) -> Tree:
    title = Text.assemble((one_line(target.name), "bold"), f": {sum(1 for _ in target.walk())} candidates")
    if (r := target.result) is not None:
        title.append(f", {n.gain(r.headline)}" if r.headline is not None else ", nothing adopted")
        if r.error:
            title.append(f"; {one_line(r.error)}", "red")
    else:
        title.append(", no report of this run")
    if target.left_out:
        title.append(f"; {target.left_out} records could not be read", "yellow")
    tree = Tree(title)
    levers: dict[str, Tree] = {}
    for spot in target.spots:
        lever = levers.get(spot.lever) or tree.add(Text(spot.lever, "bold cyan"))
        levers[spot.lever] = lever
        place = lever.add(Text(one_line(spot.title))) if spot.title else lever
        shown = [x for i, x in enumerate(spot.nodes) if i < most or any(y.adopted for y, _ in x.walk())]
        for node in shown:
            _grow(place, node)
        if hidden := len(spot.nodes) - len(shown):
            place.add(Text(f"and {hidden} more (--all shows them)", "dim"))
    return tree


def _grow(parent: Tree, node: Node) -> None:
    branch = parent.add(_label(node))
    for child in node.children:
        _grow(branch, child)


def _label(node: Node) -> Text:
    c = node.trial.candidate
    out = Text()
    out.append(one_line(c.technique) or c.id, "bold" if node.adopted else "")
    out.append(f" [{one_line(c.author)}] ", "dim")
    if timed := step(node):
        out.append(f"{timed} ")
    for verdict, scope in node.verdicts:
        if scope == "none":
            continue
        mark, colour = MARKS[verdict.status]
        # Kept together where the line is broken.
        out.append(f"{mark}\u00a0{verdict.gate}", colour)
        time = f"\u00a0{n.seconds(verdict.seconds)}".replace(" ", "\u00a0") if verdict.seconds else ""
        out.append(f"{time} ", "dim")
    out.append("adopted " if node.adopted else "", "bold green")
    out.append(reason(node), "dim")
    out.append(f" {c.id}", "dim")
    out.rstrip()
    return out


def _yields(target: TargetTrace) -> Table | None:
    rows = yields(target)
    if not rows:
        return None
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", title=(
        "What each role gave: questions asked, answers that fit, candidates made and kept; tokens"))
    for title in ("role", "brain"):
        table.add_column(title, no_wrap=True, min_width=len("summarizer") if title == "role" else 0)
    for title in ("asked", "fit", "made", "kept", "in", "out", "USD", "seconds"):
        table.add_column(title, justify="right", min_width=len(title))
    for y in rows:
        money = "no price" if y.money_usd is None else f"{y.money_usd:.4f}"
        table.add_row(y.role, one_line(y.brain), *(str(x) for x in y[2:8]), money, n.significant(y.seconds, 3))
    return table


def _workers(target: TargetTrace) -> Text | None:
    if not target.workers:
        return None
    longest = sorted(target.workers.items(), key=lambda item: -item[1])[:6]
    return Text("Workers: " + ", ".join(f"{one_line(name)} {n.seconds(s)}" for name, s in longest), "dim")
