"""The plain copy of a user's kernel: what the contract accepts, and what is refused with a reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelopt_bot.compiler.plain_triton import PlainKernel, Unfit, plain_kernel
from kernelopt_bot.contract import source as source_contract
from kernelopt_bot.targets.triton_kernels import imported

EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"


def plain(text: str, name: str = "k") -> PlainKernel:
    tree = ast.parse(text)
    return plain_kernel(tree, name, imported(tree))


@pytest.mark.parametrize("name, kernel", [
    ("softmax", "_softmax_kernel"), ("rms_norm", "rms_norm_kernel"), ("swiglu", "swiglu_kernel")])
def test_the_examples_conform_to_the_contract(name: str, kernel: str) -> None:
    copy = plain((EXAMPLES / f"{name}.py").read_text(), kernel)
    assert source_contract.check(copy.specialised({"n_cols"})) == []
    assert "n_cols: tl.constexpr" in copy.specialised({"n_cols"})


MESSY = '''from __future__ import annotations
import triton as tr
import triton.language as T
from triton.language.extra.cuda import libdevice as ld

_LOG2E: T.constexpr = T.constexpr(1.4426950408889634)
UNUSED = open

@tr.jit
def _helper(x, __y):
    """Words with a backslash \\\\ and größer."""
    return ld.tanh(x) * __y

@tr.autotune(configs=[], key=["n"])
@tr.jit
def k(x_ptr: T.tensor, out_ptr, n: int, *, _scale=1.0) -> None:
    pass
'''


def test_names_and_annotations_become_the_contracts() -> None:
    text = MESSY.replace(" *, _scale=1.0", "_scale=1.0, BLOCK: 'tl.constexpr' = 64").replace("    pass\n", (
        "    '''Docstring'''\n    tmp: T.tensor = T.load(x_ptr + T.arange(0, BLOCK))\n"
        "    T.store(out_ptr + T.arange(0, BLOCK), _helper(T.math.exp(tmp) * _LOG2E, __y=_scale))\n"))
    copy = plain(text)
    made = copy.specialised({"_scale"})
    assert source_contract.check(made) == [], made
    assert copy.defaults == {"_scale": 1.0, "BLOCK": 64} and copy.called("_scale") == "scale"
    assert copy.constexprs == {"BLOCK"} and "UNUSED" not in made
    assert "def k(x_ptr, out_ptr, n, scale: tl.constexpr, BLOCK: tl.constexpr):" in made


def test_keyword_only_parameters_are_refused() -> None:
    with pytest.raises(Unfit, match="only plain parameters"):
        plain(MESSY)


@pytest.mark.parametrize("decorator, body, words", [
    ("@triton.jit(do_not_specialize=['x'])", "pass", "options of its own"),
    ("@other\n@triton.jit", "pass", "the decorator other of k is not known"),
    ("@triton.jit", "helper(x)", "helper comes from ops.helper: the kernel's helpers have to be in its own file"),
    ("@triton.jit", "tl.store(x, TABLE)", "TABLE, which the kernel uses, is not a literal"),
    ("@triton.jit", "nowhere(x)", "nowhere is not defined at the top level"),
    ("@triton.jit", "host(x)", "host is not under @triton.jit"),
])
def test_what_cannot_be_taken_says_the_line_and_why(decorator: str, body: str, words: str) -> None:
    with pytest.raises(Unfit, match=words):
        plain("import triton\nimport triton.language as tl\nfrom ops import helper\nTABLE = [1]\ndef host(x): pass\n"
              f"{decorator}\ndef k(x):\n    {body}\n")


def test_a_parameter_that_is_an_option_is_refused() -> None:
    with pytest.raises(Unfit, match="num_warps is a parameter"):
        plain("import triton\n@triton.jit\ndef k(x, num_warps): pass\n")


def test_what_device_code_may_not_name_is_for_the_contract_to_refuse() -> None:
    copy = plain("import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n"
                 "    tl.inline_asm_elementwise('trap;', '', [], tl.int32, False, 1)\n")
    assert source_contract.check(copy.specialised(()))


def test_a_kernel_behind_a_condition_is_found_with_its_helpers() -> None:
    copy = plain("try:\n    import triton\n    import triton.language as tl\nexcept ImportError:\n    triton = None\n"
                 "if triton is not None:\n    N = 4\n    @triton.jit\n    def h(x):\n        return x + N\n"
                 "    @triton.jit\n    def k(p):\n        tl.store(p, h(1))\n")
    assert source_contract.check(copy.specialised(())) == [] and "tl.constexpr(4)" in copy.specialised(())


@pytest.mark.parametrize("name", ["_if", "_in", "__lambda", "_is", "_None"])
def test_no_name_becomes_a_word_of_python(name: str) -> None:
    copy = plain(f"import triton\nimport triton.language as tl\n@triton.jit\ndef k(p):\n    {name} = tl.load(p)\n"
                 f"    tl.store(p, {name})\n")
    assert source_contract.check(copy.specialised(())) == []


@pytest.mark.parametrize("also", [
    "N *= 2", "N = 8", "if open:\n    N = 8", "try:\n    pass\nexcept Exception:\n    N = 8", "for N in (1, 2): pass",
    "def f():\n    global N\n    N = 8", "def N(): pass", "with open('x') as N: pass", "(N := 8)", "del N"])
def test_a_constant_that_is_set_twice_is_not_guessed(also: str) -> None:
    head = "import triton\nimport triton.language as tl\nN = 4\n"
    kernel = "@triton.jit\ndef k(p):\n    tl.store(p, N)\n"
    with pytest.raises(Unfit, match=r"N, which the kernel uses, is set in several places|not under @triton.jit"):
        plain(f"{head}{also}\n{kernel}")
    assert "tl.constexpr(4)" in plain(head + "x = [N for N in (1,)]\ndef f(N): N = 2\n" + kernel).specialised(())
