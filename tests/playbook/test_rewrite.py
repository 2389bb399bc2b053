from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.rewrite import drop_dead, expression, merge_equal, statements, substitute


def text(body: list[ast.stmt]) -> str:
    return "\n".join(ast.unparse(s) for s in body)


def merged(source: str, distinct: bool = True) -> str:
    return text(merge_equal(statements(source), lambda p, q: distinct and p != q))


def test_equal_loads_are_done_once_whatever_their_hint() -> None:
    found = merged("a = tl.load(p + x, m, eviction_policy='evict_last', other=0.0)\n"
                   "b = tl.load(p + x, m, eviction_policy='evict_first', other=0.0)\nc = a + b")
    assert found == "a = tl.load(p + x, m, eviction_policy='evict_last', other=0.0)\nc = a + a"


@pytest.mark.parametrize("second", ["tl.load(p + x, n, other=0.0)", "tl.load(q + x, m, other=0.0)",
                                    "tl.load(p + y, m, other=0.0)", "tl.load(p + x, m, other=1.0)"])
def test_different_loads_stay(second: str) -> None:
    source = f"a = tl.load(p + x, m, other=0.0)\nb = {second}"
    assert merged(source) == source


def test_a_store_through_a_pointer_that_may_overlap_forgets_what_was_loaded() -> None:
    source = "a = tl.load(p + x, m)\ntl.store(q + x, a, m)\nb = tl.load(p + x, m)\ntl.store(q + y, b, m)"
    assert merged(source, distinct=False) == source
    assert "b = " not in merged(source)


def test_a_store_through_the_same_pointer_always_forgets() -> None:
    source = "a = tl.load(p + x, m)\ntl.store(p + x, a, m)\nb = tl.load(p + x, m)\ntl.store(q + y, b, m)"
    assert merged(source) == source


def test_names_bound_again_become_unique() -> None:
    assert merged("a = 1 + x\na = a + y\nb = a + z") == "a = 1 + x\na_v1 = a + y\nb = a_v1 + z"


def test_tuples_are_renamed_and_not_merged() -> None:
    found = merged("a, b = f(x)\na, b = f(x)\nc = a + b")
    assert found == "a, b = f(x)\na_v1, b_v1 = f(x)\nc = a_v1 + b_v1"


def test_loops_are_refused() -> None:
    with pytest.raises(NotUnderstood, match="loop"):
        merged("for i in tl.range(0, n, B):\n    a = i")


def test_dead_code_goes_and_effects_stay() -> None:
    body = statements("a = 1\nb = a + 1\nc = 2\ntl.store(p + c, c, None)\nfor i in range(4):\n    d = i\n"
                      "e = tl.atomic_add(p, 1)\n'doc'")
    assert text(drop_dead(body)) == "c = 2\ntl.store(p + c, c, None)\ne = tl.atomic_add(p, 1)"


def test_values_carried_round_a_loop_stay() -> None:
    source = "a = 0\nfor i in range(4):\n    a = a + i\ntl.store(p, a, None)"
    assert text(drop_dead(statements(source))) == source


def test_substitution_leaves_the_original_alone() -> None:
    node = expression("a + b")
    assert ast.unparse(substitute(node, {"a": expression("c * d")})) == "c * d + b"
    assert ast.unparse(node) == "a + b"
