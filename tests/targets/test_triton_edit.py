"""Edits in place: only the meant spans change, whatever the file looks like."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path
from typing import Any, cast

import pytest

from kernelopt_bot.targets.triton_edit import NotEditable, Settings, edited, handle

EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"
WHY = "KernelOPT 0.1.0: 1.20x (1.18 to 1.22) over the former configuration"


def changed(old: bytes, new: bytes) -> list[str]:
    """The lines that went and came, without the context."""
    lines = difflib.unified_diff(old.decode().splitlines(), new.decode().splitlines(), n=0, lineterm="")
    return [line for line in lines if line[:2] not in ("--", "++", "@@")]


def test_an_autotuners_list_is_pruned_and_extended_and_what_stays_keeps_its_text() -> None:
    old = (EXAMPLES / "rms_norm.py").read_bytes()
    new = edited(old, "rms_norm_kernel", [Settings({"BLOCK": 1024}, 8, 3), Settings({"BLOCK": 512}, 2, 1)], WHY)
    assert changed(old, new) == [
        '-        triton.Config({"BLOCK": 256}, num_warps=4),',
        '-        triton.Config({"BLOCK": 1024}, num_warps=8),  # long rows',
        f"+        # {WHY}", '+        triton.Config({"BLOCK": 1024}, num_warps=8),',
        '+        triton.Config({"BLOCK": 512}, num_warps=2, num_stages=1),']
    assert handle(ast.parse(new), "rms_norm_kernel").constexprs == ("BLOCK",)


def test_a_launch_gets_a_keyword_and_another_value() -> None:
    old = (EXAMPLES / "swiglu.py").read_bytes()
    new = edited(old, "swiglu_kernel", [Settings({"BLOCK": 512}, 8, 3)], WHY)
    assert changed(old, new) == [
        "-    swiglu_kernel[grid](gate_up, out, n_cols, out.numel(), BLOCK=1024)", f"+    # {WHY}",
        "+    swiglu_kernel[grid](gate_up, out, n_cols, out.numel(), BLOCK=512, num_warps=8)"]


def test_values_over_several_lines_and_what_the_host_computes_stay_where_they_are() -> None:
    old = (EXAMPLES / "softmax.py").read_bytes()
    new = edited(old, "_softmax_kernel", [Settings({}, 2, 3)], WHY)
    assert changed(old, new) == [f"+    # {WHY}", "-        num_warps=4,", "+        num_warps=2,"]
    place = handle(ast.parse(old), "_softmax_kernel")
    assert (place.kind, place.constexprs, place.options) == ("launch", (), ("num_warps", "num_stages"))


@pytest.mark.parametrize("name, kernel, settings", [
    ("rms_norm", "rms_norm_kernel", Settings({"BLOCK": 2048}, 8, 2)),
    ("swiglu", "swiglu_kernel", Settings({"BLOCK": 256}, 2, 3)), ("softmax", "_softmax_kernel", Settings({}, 8, 3))])
def test_line_ends_tabs_marks_and_other_alphabets_stay(name: str, kernel: str, settings: Settings) -> None:
    text = (EXAMPLES / f"{name}.py").read_text().replace("    ", "\t")
    text = text.replace("import torch\n", "import torch  # größer\n")
    old = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    new = edited(old, kernel, [settings], WHY)
    assert new.startswith(b"\xef\xbb\xbf") and new.count(b"\r\n") == new.count(b"\n") and "größer".encode() in new
    assert 2 <= len(changed(old, new)) <= 6
    ast.parse(new)


def test_an_edit_that_says_what_is_there_changes_nothing() -> None:
    old = (EXAMPLES / "swiglu.py").read_bytes()
    assert edited(old, "swiglu_kernel", [Settings({"BLOCK": 1024}, 4, 3)], WHY) == old


def test_no_reason_can_become_code() -> None:
    old = (EXAMPLES / "swiglu.py").read_bytes()
    new = edited(old, "swiglu_kernel", [Settings({"BLOCK": 512}, 4, 3)], "a\nimport os\r\u2028os.abort()\x00\x0cpass")
    assert ast.dump(ast.parse(new)) == ast.dump(ast.parse(old)).replace("value=1024", "value=512")


KERNEL = "import triton\n@triton.jit\ndef k(x, B: 'tl.constexpr'):\n    pass\n"


@pytest.mark.parametrize("rest, words", [
    ("", "launched in 0 places"), ("k[1](x, B=2)\nk[1](x, B=4)\n", "launched in 2 places"),
    ("def f(**more):\n    k[1](x, **more)\n", r"by \* or \*\*"), ("def f(*more):\n    k[1](*more)\n", r"by \* or \*\*"),
])
def test_what_cannot_be_edited_says_why(rest: str, words: str) -> None:
    with pytest.raises(NotEditable, match=words):
        edited((KERNEL + rest).encode(), "k", [Settings({}, 8, 3)], WHY)


def test_an_autotuner_with_hooks_is_left_alone() -> None:
    text = KERNEL.replace("@triton.jit", "@triton.autotune([triton.Config({'B': 2}, pre_hook=f)], key=[])\n@triton.jit")
    with pytest.raises(NotEditable, match="hooks"):
        edited(text.encode(), "k", [Settings({"B": 4}, 8, 3)], WHY)


def test_constexprs_that_heuristics_set_are_not_changed() -> None:
    text = KERNEL.replace("@triton.jit", "@triton.heuristics({'B': lambda a: 2})\n@triton.jit") + "k[1](x, B=2)\n"
    assert handle(ast.parse(text), "k").constexprs == ()


def test_a_list_of_another_place_is_written_out() -> None:
    text = KERNEL.replace("@triton.jit", "@triton.autotune(configs=CONFIGS, key=['x'])\n@triton.jit").encode()
    new = edited(text, "k", [Settings({"B": 4}, 8, 3)], WHY)
    assert b"configs=[\n" in new and b'triton.Config({"B": 4}, num_warps=8, num_stages=3),' in new


TUNED = KERNEL.replace("@triton.jit", "@triton.autotune([triton.Config({'B': 2})], key=[])\n@triton.jit").encode()
INJECTED = 'B": 2}, num_warps=1), __import__("os").abort(), triton.Config({"B'


@pytest.mark.parametrize("settings", [
    Settings({INJECTED: 4}, 1, 1), Settings({"B\n": 4}, 1, 1), Settings({"": 4}, 1, 1), Settings({"if": 4}, 1, 1),
    Settings({"B": float("nan")}, 1, 1), Settings({"B": float("inf")}, 1, 1), Settings({"B": cast(Any, [1])}, 1, 1),
    Settings({"B": cast(Any, None)}, 1, 1), Settings({"B": 4}, cast(Any, "abort()"), 1),
    Settings({"B": 4}, 1, cast(Any, None)), Settings({cast(Any, 7): 4}, 1, 1),
])
def test_no_name_and_no_value_can_become_code(settings: Settings) -> None:
    for text in (TUNED, (KERNEL + "k[1](x, B=2)\n").encode()):
        with pytest.raises(NotEditable, match="cannot be given the value"):
            edited(text, "k", [settings], WHY)


def test_a_text_stays_a_text() -> None:
    value = '"}, pre_hook=abort), {"'
    new = edited(TUNED, "k", [Settings({"B": value}, 4, 3)], WHY)
    (entry,) = [n for n in ast.walk(ast.parse(new)) if isinstance(n, ast.Dict)]
    assert ast.literal_eval(entry) == {"B": value}


@pytest.mark.parametrize("head", ["# -*- coding: latin-1 -*-\n", "# coding: no-such-encoding\n", ""])
def test_a_file_that_is_not_in_utf_8_is_left_alone(head: str) -> None:
    text = (head + "import triton  # größer\n" + KERNEL + "k[1](x, 'é', B=2)\n").encode("latin-1")
    with pytest.raises(NotEditable, match="not in UTF-8"):
        edited(text, "k", [Settings({"B": 4}, 8, 3)], WHY)
    plain = (head.replace("no-such-encoding", "ascii") + KERNEL + "k[1](x, B=2)\n").encode()
    assert b"B=4, num_warps=8" in edited(plain, "k", [Settings({"B": 4}, 8, 3)], WHY)


@pytest.mark.parametrize("call, there", [
    ("k[1](x, \\\n    B=2)\n", "k[1](x, \\\n    B=4, num_warps=8)\n"),
    ("if x: k[1](x, B=2); y = 'é', k\n", "if x: k[1](x, B=4, num_warps=8); y = 'é', k\n"),
    ("\x0cz = 'ü', k[1](x, B=2)\n", "\x0cz = 'ü', k[1](x, B=4, num_warps=8)\n"),
    ("k[1](x, B=(2),)  # B=2 )\n", "k[1](x, B=(4), num_warps=8,)  # B=2 )\n"),
    ("k[1](x, B=2, y=(z)  # B=2\n)\n", "k[1](x, B=4, y=(z), num_warps=8  # B=2\n)\n"),
    ("k[1](x, B=0x2)\n", "k[1](x, B=4, num_warps=8)\n"),
    ("k[1](x, y='" + "b" * 50_000 + "', B=2)\n", "b', B=4, num_warps=8)\n"),
    ("k[lambda m: (m['B'],)](*[], x, B=2)\n", ""),
    ("y = 1; \\\nk[1](x, B=2)\n", "y = 1; \\\nk[1](x, B=4, num_warps=8)\n"),
    ("s = '''\n''', k[1](x, B=2)\n", "s = '''\n''', k[1](x, B=4, num_warps=8)\n"), ("'''\n'''; k[1](x, B=2)\n", ""),
])
def test_only_the_values_change_or_nothing(call: str, there: str) -> None:
    old = (KERNEL + "x = 0\n" + call).encode()
    try:
        new = edited(old, "k", [Settings({"B": 4}, 8, 3)], WHY)
    except NotEditable:
        assert not there
        return
    assert there and new.decode().replace(f"# {WHY}\n", "").endswith(there)
    assert new.startswith(KERNEL.encode() + b"x = 0\n")


def test_a_number_for_a_run_time_argument_is_no_configuration() -> None:
    text = KERNEL.replace("(x, B", "(x, n, B") + "k[1](x, n=64, B=2)\n"
    assert handle(ast.parse(text), "k").constexprs == ("B",)
