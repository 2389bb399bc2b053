import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelopt_bot.contract import names, source
from kernelopt_bot.contract.body import dotted
from tests.contract.sources import ESCAPES, GOOD, HEADER, body


def rules(text: str) -> set[str]:
    return {v.rule for v in source.check(text)}


def test_conforming_source_passes() -> None:
    assert source.check(GOOD) == []


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES.keys())
def test_escape_is_a_violation(text: str) -> None:
    assert source.check(text)


def test_check_executes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ESCAPES.values():
        source.check(text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", [
    "y = tl.load(x_ptr + o, o < n, other=0.0)",
    "y = tl.math.exp2(1.0) + tl_math.exp(2.0)",
    "y = triton_helpers.max2(o[None, :], 1)[:, None].to(tl.float32)",
    "a, b = triton_helpers.max_with_index(o, o, 0)",
    "y = tl.full([BLOCK], float('-inf'), tl.float32)",
    "y = (libdevice.signbit(o) != 0) if (o).dtype is tl.float32 else o < 0",
    "y = o.to(tl.float32, bitcast=True)",
    "y = tl.full(o.shape, 0, o.dtype)",
    "R0_BLOCK: tl.constexpr = 256",
    "for i in tl.range(0, n, BLOCK):\n        o += i",
    "for i in tl.static_range(4):\n        o += i",
    "while n < 4:\n        n += 1",
    "if n > 3 and not n == 5:\n        o += 1\n    elif n:\n        pass\n    else:\n        o -= 1",
    "tl.device_assert((0 <= o) & (o < n), 'index out of bounds')",
    "y = -min(n, 3) + max(n, 2) % 3 // 1 << 2 | 1 & ~n ^ 1",
    "tl.atomic_add(x_ptr + o, o, o < n, sem='relaxed')",
    "y = tl.dot(o[:, None], o[None, :], input_precision='ieee')",
])
def test_what_kernels_need_is_allowed(line: str) -> None:
    assert source.check(body(line)) == []


def test_the_rule_and_the_line_are_named() -> None:
    (violation,) = source.check(body("y = open"))
    assert (violation.rule, violation.line) == ("name", 9)
    assert "open" in violation.message


def test_a_name_without_its_import_does_not_resolve() -> None:
    (violation,) = source.check("import triton\n@triton.jit\ndef k(x):\n    tl.store(x, 0)\n")
    assert violation.rule == "name"


@pytest.mark.parametrize("line", [
    "import triton", "import triton.language as tl", "from triton import language as tl",
    "from triton.language.extra import libdevice", "from torch._inductor.runtime import triton_helpers",
    "from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math",
])
def test_allowed_imports(line: str) -> None:
    assert source.check(f"{line}\n" + GOOD) == []


def test_parameters_in_order() -> None:
    function = source.functions(GOOD)["scale"]
    assert source.runtime_parameters(function) == ("in_ptr0", "out_ptr0", "xnumel")
    assert source.constexprs(function) == ("XBLOCK",)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_answered(text: str) -> None:
    source.check(text)
    source.check(HEADER + text)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_spliced_text_never_reaches_another_name(data: st.DataObject) -> None:
    """What passes uses only names that the contract knows, whatever was spliced in."""
    line = data.draw(st.sampled_from(GOOD.splitlines()))
    piece = data.draw(st.sampled_from([
        "tl.core", "open('x')", "(y := 1)", "[tl]", "x.__class__", "lambda: 0", "tl.load", "\n", "    ", "@", "eval",
        "triton.jit", ":", "**n", "*a", "helper", "add", "SCALE", "f''", "...", "0", "tl.math.exp(1.0)"]))
    position = data.draw(st.integers(0, len(line)))
    text = GOOD.replace(line, line[:position] + piece + line[position:], 1)
    if source.check(text):
        return
    known = names.EXPORTED | {"triton.jit", "tl.constexpr"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            assert node.id not in {"open", "eval", "helper", "getattr", "__import__"}
        if isinstance(node, ast.Attribute):
            chain = dotted(node)
            root = chain.split(".")[0] if chain else ""
            if root in names.ROOTS and chain not in ("tl.math",):
                assert chain in known


@pytest.mark.parametrize("decorator", [
    "@(\ntriton.jit)", "@(\ntriton.jit\n)", "@triton.\\\njit", "@(triton.jit)", "@(triton).jit", "@triton.jit\n",
    "@triton.jit\n# why", "@triton.jit\n@triton.jit"])
def test_the_decorator_is_one_line_directly_above_def(decorator: str) -> None:
    assert rules(f"{HEADER}{decorator}\ndef k(x):\n    tl.store(x, 0)\n") & {"decorator", "text"}


def test_a_comment_may_follow_the_decorator() -> None:
    assert source.check(GOOD.replace("@triton.jit\n", "@triton.jit  # one pass\n")) == []
