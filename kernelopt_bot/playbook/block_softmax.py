"""The running maximum and sum of a softmax over a row that is there as a whole: the maximum first, then one exponential
an element.

The running form rescales its sum with each value (Milakov and Gimelshein, Online normalizer calculation for softmax,
arXiv 1805.02867): three exponentials an element where the row is one block.
"""

from __future__ import annotations

import ast

from kernelopt_bot.playbook.kernel_source import name_of
from kernelopt_bot.playbook.rewrite import statements


def maximum_first(body: list[ast.stmt]) -> list[ast.stmt]:
    """`body` (straight-line code, unique names) with each update of fresh accumulators as what it amounts to: the value
    and a weight of one. What cannot be matched stays as it is."""
    definitions = {name_of(s): ast.unparse(s.value) for s in body if isinstance(s, ast.Assign) and name_of(s)}
    result: list[ast.stmt] = []
    for statement in body:
        value = getattr(statement, "value", None)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if (isinstance(target, ast.Tuple) and isinstance(value, ast.Call)
                and ast.unparse(value.func) == "triton_helpers.online_softmax_combine"):
            maximum, total, new, _ = (ast.unparse(a) for a in value.args)
            if (definitions.get(maximum, "").startswith("tl.full([XBLOCK, R0_BLOCK], float('-inf')")
                    and definitions.get(total, "").startswith("tl.zeros([XBLOCK, R0_BLOCK]")):
                first, second = (ast.unparse(e) for e in target.elts)
                result += statements(f"{first} = {new}\n{second} = {total} + 1.0")
                continue
        result.append(statement)
    return result
