"""The neighbourhood of a kernel's own configurations."""

from __future__ import annotations

import ast

from kernelopt_bot.search.triton_calls import TritonConfig
from kernelopt_bot.search.triton_space import MOST, space
from kernelopt_bot.targets.triton_edit import Handle

LOOP = ast.parse("def k(n, BLOCK):\n    for i in range(n):\n        pass\n").body[0]
PLAIN = ast.parse("def k(n, BLOCK):\n    pass\n").body[0]
assert isinstance(LOOP, ast.FunctionDef) and isinstance(PLAIN, ast.FunctionDef)
CALL = ast.parse("k[1](2)").body[0]
assert isinstance(CALL, ast.Expr) and isinstance(CALL.value, ast.Call)


def handle(*constexprs: str, options: tuple[str, ...] = ("num_warps", "num_stages")) -> Handle:
    assert isinstance(CALL, ast.Expr) and isinstance(CALL.value, ast.Call)
    return Handle("launch", constexprs, options, CALL.value)


def test_one_thing_is_changed_before_two() -> None:
    own = TritonConfig.of({"BLOCK": 64}, 4, 3)
    found = space([own], handle("BLOCK"), PLAIN)
    assert [str(c) for c in found[:4]] == [
        "BLOCK=64, num_warps=8, num_stages=3", "BLOCK=64, num_warps=2, num_stages=3",
        "BLOCK=128, num_warps=4, num_stages=3", "BLOCK=32, num_warps=4, num_stages=3"]
    assert own not in found and len(set(found)) == len(found) <= MOST


def test_stages_matter_in_loops_only() -> None:
    own = TritonConfig.of({}, 4, 3)
    assert {c.num_stages for c in space([own], handle(), PLAIN)} == {3}
    assert {c.num_stages for c in space([own], handle(), LOOP)} == {1, 2, 3, 4, 5}


def test_what_the_file_does_not_let_us_change_stays() -> None:
    own = TritonConfig.of({"BLOCK": 64, "ROWS": 3}, 4, 3)
    found = space([own], handle("ROWS", options=("num_stages",)), LOOP)
    assert found and all(c.constexprs == own.constexprs and c.num_warps == 4 for c in found)
