"""An edit that somebody else wrote is only let through where this release would have written it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.targets.triton_edit import NotEditable, Settings, edited
from kernelopt_bot.targets.triton_edit_check import check_edit, reason_of, wanted

EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"
WHY = reason_of(1.204, 1.18, 1.22, "NVIDIA H200", 3)
CASES = {"rms_norm": ("rms_norm_kernel", [Settings({"BLOCK": 1024}, 8, 3), Settings({"BLOCK": 512}, 2, 1)]),
         "swiglu": ("swiglu_kernel", [Settings({"BLOCK": 512}, 8, 2)]), "softmax": ("_softmax_kernel", [
             Settings({}, 2, 3)])}


def pair(name: str, text: Callable[[str], bytes] = str.encode) -> tuple[bytes, bytes, str]:
    kernel, settings = CASES[name]
    old = text((EXAMPLES / f"{name}.py").read_text())
    return old, edited(old, kernel, settings, WHY), kernel


def windows(text: str) -> bytes:
    return b"\xef\xbb\xbf" + text.replace("    ", "\t").replace("\n", "\r\n").encode()


@pytest.mark.parametrize("text", [str.encode, windows])
@pytest.mark.parametrize("name", CASES)
def test_what_the_search_writes_passes(name: str, text: Callable[[str], bytes]) -> None:
    check_edit(*pair(name, text))


@pytest.mark.parametrize("device", ["NVIDIA H200", "a 'quoted'\n# kernelopt: inputs=evil", "", "x" * 400])
def test_whatever_the_device_is_called(device: str) -> None:
    old, _, kernel = pair("swiglu")
    check_edit(old, edited(old, kernel, CASES["swiglu"][1], reason_of(1.2, 1.1, 1.3, device, 1)), kernel)


def test_an_edit_of_what_was_edited_before() -> None:
    for name in CASES:
        _, old, kernel = pair(name)
        check_edit(old, edited(old, kernel, [Settings(CASES[name][1][0].constexprs, 4, 4)], WHY), kernel)


@pytest.mark.parametrize(("name", "before", "after"), [
    ("swiglu", "import torch\n", "import os, torch\n"),
    ("swiglu", "BLOCK=512", "BLOCK=print(1) or 512"),
    ("swiglu", "BLOCK=512", "BLOCK='512'"),
    ("swiglu", "num_warps=8", "num_warps=int(8)"),
    ("swiglu", "num_warps=8", "num_warps=8, extra=1"),
    ("swiglu", "num_warps=8", "num_warps = 8"),
    ("swiglu", "    # KernelOPT", "    # type: ignore\n    # KernelOPT"),
    ("swiglu", "former configuration", "former configuration # kernelopt: inputs=evil"),
    ("swiglu", "(1.18 to 1.22)", "(1.18 to 1.22) at least"),
    ("swiglu", "# kernelopt: inputs=make_inputs\n", ""),
    ("swiglu", "SwiGLU's activation", "SwiGLU's  activation"),
    ("rms_norm", "num_warps=8),", "num_warps=8, pre_hook=print),"),
    ("rms_norm", '{"BLOCK": 512}', '{"BLOCK": print(1)}'),
    ("rms_norm", '{"BLOCK": 512}', '{"BLOCK": [512]}'),
    ("rms_norm", '{"BLOCK": 512}', '{"BLOCK": 1e999}'),
    ("rms_norm", "triton.Config({\"BLOCK\": 512}", "print({\"BLOCK\": 512}"),
    ("rms_norm", 'key=["n_cols"]', 'key=["eps"]'),
    ("rms_norm", "    ],\n    key", "    ] + [],\n    key"),
    ("softmax", "num_warps=2", "num_warps=True"),
])
def test_anything_else_is_refused(name: str, before: str, after: str) -> None:
    old, new, kernel = pair(name)
    assert new.decode().count(before) >= 1
    with pytest.raises(NotEditable):
        check_edit(old, new.decode().replace(before, after).encode(), kernel)


@pytest.mark.parametrize("new", [b"", b"\0", b"\xff\xfe", b"(" * 5000, b"def broken(", b"swiglu_kernel = 1\n"])
def test_what_is_no_such_file(new: bytes) -> None:
    old, _, kernel = pair("swiglu")
    with pytest.raises(NotEditable):
        check_edit(old, new, kernel)
    with pytest.raises(NotEditable):
        check_edit(new, old, kernel)


def test_nothing_changed_is_no_edit() -> None:
    old, _, kernel = pair("swiglu")
    with pytest.raises(NotEditable, match="reason"):
        check_edit(old, old, kernel)


@pytest.mark.parametrize(("text", "answer"), [
    ("import triton\n# kernelopt: inputs=f\n@triton.jit\ndef k(): pass\n", True),
    ("import triton\n@triton.jit\ndef k(): pass\n", False), ("# kernelopt: inputs=f\ndef k(): pass\n", False),
    ("# kernelopt: inputs=f\nimport triton\n@triton.jit\ndef k(): pass\n", True), ("def k(", False)])
def test_a_marker_says_that_a_kernel_is_wanted(text: str, answer: bool) -> None:
    assert wanted(text.encode(), "k") is answer
    assert wanted(windows(text), "k") is answer, "publish reads the marker as the search does"
