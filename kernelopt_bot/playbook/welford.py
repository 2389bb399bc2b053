"""Welford updates over a row that is there as a whole become two plain sums: mean, then squared differences."""

from __future__ import annotations

import ast

from kernelopt_bot.playbook.kernel_source import name_of
from kernelopt_bot.playbook.rewrite import statements


def two_pass(body: list[ast.stmt], length: int | str) -> list[ast.stmt]:
    """Replaces each `triton_helpers.welford` over one block by sums; what cannot be matched stays as it is.

    `body` is straight-line code with unique names, the row (of `length` elements, a number or a name) in one block.
    The two-pass form is at least as accurate as the update (Chan, Golub, LeVeque, The American Statistician 37(3),
    1983) and avoids a division for each element.
    """
    size = str(float(length)) if isinstance(length, int) else length
    updates = {}
    definitions = {name_of(s): s.value for s in body if isinstance(s, ast.Assign) and name_of(s)}
    for statement in body:
        call = _call(statement, "triton_helpers.welford_reduce")
        if call is not None and isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            for element in statement.targets[0].elts:
                updates[ast.unparse(element)] = ast.unparse(call.args[0])
    result: list[ast.stmt] = []
    for number, statement in enumerate(body):
        call = _call(statement, "triton_helpers.welford")
        found = _value_and_mask(call.args[0], definitions, updates) if call is not None else None
        if found is None or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
            result.append(statement)
            continue
        mean, m2, weight = (ast.unparse(e) for e in statement.targets[0].elts)
        value, mask = found
        kept = f"tl.where({mask}, {value}, 0.0)" if mask else value
        away = f"{value} - {mean}[:, None]"
        result += statements(
            f"row_{number} = {kept}\n"
            f"{mean} = tl.sum(row_{number}, 1) / {size}\n"
            f"away_{number} = {f'tl.where({mask}, {away}, 0.0)' if mask else away}\n"
            f"{m2} = tl.sum(away_{number} * away_{number}, 1)\n"
            f"{weight} = tl.zeros([XBLOCK], tl.float32) + {size}"
        )
    return result


def _value_and_mask(
    mean: ast.expr, definitions: dict[str, ast.expr], updates: dict[str, str],
) -> tuple[str, str] | None:
    """The value that one update took, and the mask under which the accumulator kept it ('' if none)."""
    name = ast.unparse(mean)
    if name in updates:
        return updates[name], ""
    kept = definitions.get(name)
    if isinstance(kept, ast.Call) and ast.unparse(kept.func) == "tl.where" and ast.unparse(kept.args[1]) in updates:
        return updates[ast.unparse(kept.args[1])], ast.unparse(kept.args[0])
    return None


def _call(statement: ast.stmt, function: str) -> ast.Call | None:
    value = getattr(statement, "value", None)
    return value if isinstance(value, ast.Call) and ast.unparse(value.func) == function else None
