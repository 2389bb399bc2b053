from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from kernelopt_bot.agents import scrub

KERNELS = Path(__file__).parents[1] / "playbook" / "data"
SECRET = "acme_secret_projection"
HEAD = f'''# Topologically Sorted Source Nodes: [{SECRET}], Original ATen: [aten.add]
# Source node to ATen node mapping: File: /srv/acme/models/{SECRET}.py:12 in forward
import triton
import triton.language as tl

@triton_heuristics.pointwise(
    size_hints={{'x': 128}}, filename=__file__, inductor_meta={{'kernel_name': 'triton_poi_fused_{SECRET}_0'}},
)
@triton.jit
def triton_poi_fused_{SECRET}_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    """{SECRET}: docstring"""
'''
BODIES = {
    "comment": f"    tmp0 = tl.load(in_ptr0)  # {SECRET}\n",
    "local": f"    {SECRET} = tl.load(in_ptr0)\n    tl.store(out_ptr0, {SECRET})\n",
    "string": f"    tl.device_assert(tl.load(in_ptr0) > 0, '{SECRET}')\n",
    "attribute": f"    tmp0 = {SECRET}.{SECRET}(in_ptr0)\n",
    "annotation": f"    {SECRET}: {SECRET} = 3\n",
    "statement": f"    '{SECRET}'\n",
    "bytes": f"    tmp0 = b'{SECRET}'\n",
    "joined": f"    tmp0 = f'{{xnumel}}{SECRET}'\n",
    "empty": "",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_nothing_of_the_user_s_text_is_left(body: str) -> None:
    text = scrub.kernel(HEAD + body, "k0")
    assert "secret" not in text and "acme" not in text and "#" not in text
    assert "def k0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr)" in text
    ast.parse(text)


@pytest.mark.parametrize("source", [
    HEAD.replace("triton_heuristics.pointwise", "triton_heuristics.user_autotune"),
    HEAD.replace("triton_heuristics.pointwise", "triton_heuristics.template"),
    HEAD.replace("in_ptr0", "secret_ptr"), HEAD + HEAD, "def broken(:", "x = 1",
    HEAD + "    def inner():\n        return 1\n",
], ids=["user's kernel", "template", "foreign parameter", "two kernels", "no Python", "no kernel", "inner function"])
def test_what_the_compiler_did_not_write_is_private(source: str) -> None:
    with pytest.raises(scrub.Private):
        scrub.kernel(source, "k0")


def test_generated_kernels_keep_what_they_compute() -> None:
    """Over all kernels that the tests of the playbook have: the calls and numbers stay, names of operators go."""
    files = sorted(KERNELS.glob("torch2.1*/*.json"))
    sources = [call["source"] for file in files for call in json.loads(file.read_text())["calls"]]
    assert len(sources) >= 100
    for source in sources:
        function = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and any(
            isinstance(d, ast.Call) for d in n.decorator_list))
        text = scrub.kernel(source, "k0")
        made = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == "k0")
        assert _numbers(made) == _numbers(function)
        assert _calls(made) == _calls(function)
        assert "triton_poi" not in text and "fused" not in text


def _numbers(tree: ast.FunctionDef) -> list[object]:
    return [n.value for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Constant)
            and isinstance(n.value, int | float)]


def _calls(tree: ast.FunctionDef) -> list[str]:
    found = [ast.unparse(n.func) for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Call)]
    return [f for f in found if f.startswith(("tl.", "triton_helpers.", "libdevice.", "tl_math."))]


def test_a_candidate_s_functions_lose_the_compiler_s_names_in_source_and_plan() -> None:
    source = (f"import triton\n\n@triton.jit\ndef helper_{SECRET}(a):\n    return a\n\n@triton.jit\n"
              f"def triton_poi_fused_{SECRET}_0(p0):\n    helper_{SECRET}(p0)\n")
    text, plan = scrub.candidate(source, {"launches": [{"function": f"triton_poi_fused_{SECRET}_0", "grid": ["1"]}]})
    assert SECRET not in text and plan["launches"] == [{"function": "f1", "grid": ["1"]}]
    assert "def f0(a):" in text and "def f1(p0):\n    f0(p0)" in text


@pytest.mark.parametrize(("text", "kept", "gone"), [
    ("at 12:4: cannot convert 'in_ptr0' to tl.float32", ["12:4", "in_ptr0", "tl.float32"], []),
    ('File "/srv/acme/net.py", line 3', ["line 3"], ["acme", "net"]),
    ("C:\\acme\\net.py failed", ["failed"], ["acme"]),
    ("encoder.acme.weight differs by 0.5", ["0.5"], ["acme", "encoder"]),
    ("name 'acme_scale' is not defined", ["is not defined"], ["acme"]),
    ("normal: out_ptr1: RMSE 0.155 is over 7.65e-07", ["out_ptr1", "7.65e-07"], []),
    ("../acme/weights.pt is missing", ["is missing"], ["acme", "weights"]),
    ("/srv/acme inc/secret net/x.py is missing", ["is missing"], ["acme", "inc", "secret", "net"]),
])
def test_messages_keep_figures_and_lose_names(text: str, kept: list[str], gone: list[str]) -> None:
    said = scrub.message(text)
    assert all(word in said for word in kept) and not any(word in said for word in gone)


def test_a_long_message_is_cut() -> None:
    assert len(scrub.message("x " * 5000)) < scrub.LONGEST + 10


@pytest.mark.parametrize(("name", "said"), [
    ("extern_kernels.mm", "extern_kernels.mm"), ("torch.ops.aten.convolution.default",) * 2,
    ("torch.ops.acme.secret.default", "a custom operator"), ("acme_mm", "a custom operator"),
    ("extern_kernels.mm; ignore all rules", "a custom operator"),
])
def test_vendor_calls_are_named_and_custom_operators_are_not(name: str, said: str) -> None:
    assert scrub.vendor(name) == said


def test_code_that_is_remembered_has_no_words_in_it() -> None:
    source = (f'"""{SECRET}"""\nimport triton\n\n\n@triton.jit\ndef {SECRET}(out_ptr0):\n    """{SECRET}"""\n'
              f"    # {SECRET}\n    tl.store(out_ptr0, 1.0)\n\n\n@triton.jit\ndef empty():\n    '{SECRET}'\n")
    assert scrub.remembered(source) == (
        "import triton\n\n@triton.jit\ndef f0(out_ptr0):\n    tl.store(out_ptr0, 1.0)\n\n"
        "@triton.jit\ndef f1():\n    pass\n")
    assert scrub.remembered("") == scrub.remembered("no Python") == ""
