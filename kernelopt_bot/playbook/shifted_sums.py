"""Mean and variance from two plain sums a lane instead of a Welford update.

A Welford update divides for each element. Here each lane sums its values less the first one it saw, and their squares:
two additions and a multiplication. The shift keeps cancellation away (the first value is of the data's own size), and
lanes are merged by the exact pairwise formula as before. Expected: 1.05x to 1.5x where arithmetic, not memory, limits
a pass that computes statistics.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import identity, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood
from kernelopt_bot.playbook.launch_space import LaunchConfig, contiguous, derive
from kernelopt_bot.playbook.phases import Finish, Phase, Phases, phases
from kernelopt_bot.playbook.rewrite import expression, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_SHAPES = ((1, 4096, 16), (1, 2048, 8), (1, 8192, 32), (1, 4096, 8), (1, 2048, 16))
"""(rows, block, warps) where a row's elements are neighbours."""


class ShiftedSums:
    name = "shifted_sums"
    citation = ("Shifted data and pairwise merging of lanes: Chan, Golub, LeVeque, Algorithms for Computing the Sample "
                "Variance, The American Statistician 37(3), 1983; Welford, Technometrics 4(3), 1962")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        try:
            if source is None or shifted(source, site) is None:
                return None
        except NotUnderstood:
            return None
        return Expectation(min(1.15, site.headroom), "a division an element for the variance")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            found = shifted(source, site)
            if found is None:
                return
            body = joined(found)
            for config in row_configurations(source, site):
                yield identity(site, config.blocks, config.num_warps, config.num_stages, self.name,
                               f"sums of shifted values, {dict(config.blocks)}, {config.num_warps} warps", body)
        except NotUnderstood:
            return


def row_configurations(source: KernelSource, site: Site) -> Iterator[LaunchConfig]:
    """For one pass over rows: two of our own first, then the compiler's."""
    length, extent = source.constants["r0_numel"], site.numel("x") or 1
    space = derive(site)
    inner = [LaunchConfig({"XBLOCK": x, "R0_BLOCK": r}, w) for x, r, w in _SHAPES if r < 2 * length]
    found = inner if contiguous(source) == "r0_" else list(space.all())[:5] if space is not None else []
    given = [LaunchConfig(dict(c.constexprs), c.num_warps, c.num_stages) for c in site.configs]
    for config in [*found[:2], *given[:1], *found[2:]]:
        if ((source.masked("r0_") or length % config.blocks["R0_BLOCK"] == 0)
                and (source.masked("x") or extent % config.blocks["XBLOCK"] == 0)):
            yield config


def joined(found: Phases) -> list[ast.stmt]:
    """The phases as one body again."""
    body = [copied(s) for s in found.before]
    for phase in found.phases:
        body += [copied(phase.loop), *(copied(s) for s in phase.after)]
    return body


def shifted(source: KernelSource, site: Site) -> Phases | None:
    """The phases with every Welford update as shifted sums; None where there is none. Raises NotUnderstood."""
    found = phases(source, site)
    before, changed = list(found.before), False
    result: list[Phase] = []
    for phase in found.phases:
        loop, finishes, after = copied(phase.loop), list(phase.finishes), list(phase.after)
        for number, finish in enumerate(finishes):
            if ast.unparse(finish.call.func) != "triton_helpers.welford" or not _shift(loop, finish):
                continue
            changed = True
            mean = finish.lanes[0]
            before += statements(f"{mean.name}_shift = tl.zeros([XBLOCK, R0_BLOCK], {mean.type})")
            merged = _merged(finish)
            after[next(n for n, s in enumerate(after) if s is finish.statement)] = merged.statement
            finishes[number] = merged
        result.append(Phase(loop, tuple(after), tuple(finishes)))
    return replace(found, before=tuple(before), phases=tuple(result)) if changed else None


def _shift(loop: ast.For, finish: Finish) -> bool:
    """Rewrites the update of the finish's lanes in place; False where it has another form."""
    mean, m2, weight = (lane.name for lane in finish.lanes)
    for position, statement in enumerate(loop.body):
        call = getattr(statement, "value", None)
        if not isinstance(statement, ast.Assign) or not isinstance(call, ast.Call):
            continue
        function, target, arguments = ast.unparse(call.func), statement.targets[0], [ast.unparse(a) for a in call.args]
        if not isinstance(target, ast.Tuple) or len(target.elts) != 3:
            continue
        s1, s2, count = (ast.unparse(e) for e in target.elts)
        if function == "triton_helpers.welford_reduce" and arguments[1:] == [mean, m2, weight, "roffset == 0"]:
            value, more, times, one = arguments[0], "", "", "1"
        elif function == "triton_helpers.welford_combine" and arguments[:3] == [mean, m2, weight]:
            # Values that already are (mean, squared differences, weight): their sums about a shift are exact too.
            value, more, one = arguments[3], f"{arguments[4]} + ", arguments[5]
            times = f"{one} * "
        else:
            continue
        loop.body[position:position + 1] = statements(
            f"{mean}_shift = tl.where(roffset == 0, {value}, {mean}_shift)\n"
            f"{mean}_away = {value} - {mean}_shift\n"
            f"{s1} = {mean} + {times}{mean}_away\n"
            f"{s2} = {m2} + ({more}{times}{mean}_away * {mean}_away)\n{count} = {weight} + {one}")
        return True
    return False


def _merged(finish: Finish) -> Finish:
    """The same reduction of lanes, from sums to mean and squared differences first."""
    mean, m2, weight = (lane.name for lane in finish.lanes)
    some = f"triton_helpers.maximum({weight}, 1.0)"
    statement = copied(finish.statement)
    call = statement.value
    assert isinstance(call, ast.Call)
    call.args[0] = expression(f"{mean}_shift + {mean} / {some}")
    call.args[1] = expression(f"triton_helpers.maximum({m2} - {mean} * {mean} / {some}, 0.0)")
    return Finish(statement, call, finish.lanes, finish.again)


TECHNIQUE = ShiftedSums()
