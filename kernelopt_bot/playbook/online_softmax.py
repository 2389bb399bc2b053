"""Maximum and sum of exponentials of a row in one pass instead of two.

The compiler fuses the two passes of a softmax itself, but not where the maximum is guarded before it is subtracted, as
in a log-sum-exp. The running form keeps a maximum and a sum a lane and rescales the sum when the maximum grows; what
the two-pass form yields for rows with infinities is restored after the loop. Expected: one reading of the row less.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import identity, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, name_of
from kernelopt_bot.playbook.phases import Finish, phases
from kernelopt_bot.playbook.rewrite import drop_dead, impure, statements
from kernelopt_bot.playbook.shifted_sums import row_configurations
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_EXPONENTIALS = ("libdevice.exp", "tl_math.exp")
_PASSED_ON = ("tl.broadcast_to",)


class OnlineSoftmax:
    name = "online_softmax"
    citation = ("Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv 1805.02867; "
                "torch/_inductor/runtime/triton_helpers.py (online_softmax_combine)")

    def applies(self, site: Site) -> Expectation | None:
        try:
            if site.source is None or not one_pass(site.source, site):
                return None
        except NotUnderstood:
            return None
        return Expectation(min(1.8, site.headroom), "maximum and sum of exponentials of the same values in two passes")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            body = one_pass(source, site)
            for config in row_configurations(source, site):
                yield identity(site, config.blocks, config.num_warps, config.num_stages, self.name,
                               f"one pass for maximum and sum, {dict(config.blocks)}, {config.num_warps} warps", body)
        except NotUnderstood:
            return


def one_pass(source: KernelSource, site: Site) -> list[ast.stmt]:
    """The body with the second of two loops folded into the first. Raises NotUnderstood."""
    found = phases(source, site)
    if len(found.phases) != 2 or any(len(p.finishes) != 1 or len(p.lanes) != 1 for p in found.phases):
        raise NotUnderstood("not two passes with one reduction each")
    first, second = found.phases
    top, total = first.finishes[0], second.finishes[0]
    maximum, mask = _update(first.loop.body, top, "triton_helpers.maximum({lane}, {value})", "triton_helpers.max2")
    exponential, again = _update(second.loop.body, total, "{lane} + {value}", "tl.sum")
    guarded = _exponent(first.loop.body, second.loop.body, maximum, exponential, name_of(top.statement))
    if mask != again or any(impure(s) for s in second.loop.body) or not name_of(total.statement):
        raise NotUnderstood("the passes differ in more than what they reduce")
    lane, result, sum_ = top.lanes[0].name, name_of(top.statement), name_of(total.statement)
    loop = copied(first.loop)
    body: list[ast.stmt] = []
    for statement in loop.body:
        if _combines(statement, f"triton_helpers.maximum({lane}, {maximum})"):
            body += statements(f"{name_of(statement)}, running_sum_next = triton_helpers.online_softmax_combine("
                               f"{lane}, running_sum, {maximum}, False)")
            body += statements(f"running_sum = tl.where({mask}, running_sum_next, running_sum)" if mask
                               else "running_sum = running_sum_next")
        else:
            body.append(statement)
    loop.body = body
    after: list[ast.stmt] = []
    for statement in (*first.after, *second.after):
        if statement is top.statement:
            after += statements(
                f"row_max, row_sum = triton_helpers.online_softmax_reduce({lane}, running_sum, 1, False)\n"
                f"{result} = row_max[:, None]\nrow_sum = row_sum[:, None]")
        elif statement is total.statement:
            # exp(x - 0) where the maximum is infinite and guarded; inf - inf is nan where it is not.
            infinite = f"tl.where({result} > 0, float('inf'), 0.0)"
            after += statements(
                f"{sum_} = tl.where(tl_math.abs({result}) == float('inf'), {infinite}, row_sum)" if guarded
                else f"{sum_} = row_sum + ({result} - {result})")
        else:
            after.append(copied(statement))
    start = statements("running_sum = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)")
    return drop_dead([*(copied(s) for s in found.before), *start, loop, *after])


def _combines(statement: ast.stmt, text: str) -> bool:
    return isinstance(statement, ast.Assign) and bool(name_of(statement)) and ast.unparse(statement.value) == text


def _update(body: Sequence[ast.stmt], finish: Finish, form: str, reducer: str) -> tuple[str, str]:
    """(name of the value, mask) of `next = form; lane = tl.where(mask, next, lane)`. Raises NotUnderstood."""
    lane = finish.lanes[0]
    if (ast.unparse(finish.call.func) != reducer or lane.type != "tl.float32"
            or ast.unparse(finish.statement.value) != f"{ast.unparse(finish.call)}[:, None]"):
        raise NotUnderstood(f"a reduction by {ast.unparse(finish.call.func)}")
    definitions = {name_of(s): s.value for s in body if isinstance(s, ast.Assign) and name_of(s)}
    update, mask = definitions.get(lane.name), ""
    if isinstance(update, ast.Call) and ast.unparse(update.func) == "tl.where" and ast.unparse(
            update.args[2]) == lane.name:
        mask, update = ast.unparse(update.args[0]), update.args[1]
    while isinstance(update, ast.Name):
        update = definitions.get(update.id)
    last = None
    if isinstance(update, ast.Call) and update.args:
        last = update.args[-1]
    elif isinstance(update, ast.BinOp):
        last = update.right
    if update is None or not isinstance(last, ast.Name) or ast.unparse(update) != form.format(
            lane=lane.name, value=last.id):
        raise NotUnderstood(f"{lane.name} is updated in another way")
    return last.id, mask


def _exponent(first: Sequence[ast.stmt], second: Sequence[ast.stmt], maximum: str, exponential: str, top: str) -> bool:
    """Whether the maximum is guarded against infinity in `exp(value - maximum)`, of the values whose maximum the first
    loop takes. Raises NotUnderstood if the second loop sums something else."""
    value = _inlined(ast.Name(maximum, ast.Load()), first)
    call = _inlined(ast.Name(exponential, ast.Load()), second)
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) in _EXPONENTIALS and len(call.args) == 1
            and isinstance(call.args[0], ast.BinOp) and isinstance(call.args[0].op, ast.Sub)
            and ast.unparse(call.args[0].left) == ast.unparse(value)):
        raise NotUnderstood("no sum of exponentials of the values whose maximum is taken")
    subtracted = ast.unparse(call.args[0].right)
    if subtracted == top:
        return False
    infinity = "tl.full([1, 1], float('inf'), tl.float32)"
    if subtracted == f"tl.where(tl_math.abs({top}) == {infinity}, tl.full([1, 1], 0.0, tl.float32), {top})":
        return True
    raise NotUnderstood(f"{subtracted} is subtracted")


def _inlined(node: ast.expr, body: Sequence[ast.stmt]) -> ast.expr:
    """With the loop's own definitions put in, broadcasts and cache hints left out."""
    definitions = {name_of(s): s.value for s in body if isinstance(s, ast.Assign) and name_of(s)}

    class Inline(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            value = definitions.get(name.id)
            return name if value is None else self.visit(copied(value))

        def visit_Call(self, call: ast.Call) -> ast.expr:
            if ast.unparse(call.func) in _PASSED_ON:
                inner: ast.expr = self.visit(call.args[0])
                return inner
            call.keywords = [k for k in call.keywords if k.arg != "eviction_policy"]
            self.generic_visit(call)
            return call

    result: ast.expr = Inline().visit(copied(node))
    return result


TECHNIQUE = OnlineSoftmax()
