"""Candidates as text: one that conforms, and ways to break it. Data of the tests in this folder."""

HEADER = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
"""

GOOD = HEADER + '''
SCALE = tl.constexpr(2.0)


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scale(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    """One pass."""
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    address = out_ptr0 + xindex
    tmp0 = tl.load(in_ptr0 + xindex, xmask, other=0.0, eviction_policy='evict_last')
    total = tl.reduce(tmp0, 0, add)
    tmp1 = libdevice.tanh(tmp0).to(tl.float32) * SCALE + (total - total)
    tl.store(address, tmp1, xmask)
'''


def body(*lines: str, before: str = "", parameters: str = "x_ptr, n, BLOCK: tl.constexpr") -> str:
    """A candidate whose one kernel has these lines."""
    inner = "\n".join(f"    {line}" for line in lines)
    return f"{HEADER}{before}\n@triton.jit\ndef k({parameters}):\n    o = tl.arange(0, BLOCK)\n{inner}\n"


ESCAPES = {
    "attribute chain to builtins": body("tl.core.builtins.exec('x')"),
    "attribute chain through helpers": body("triton_helpers.warnings.sys.modules['os'].system('x')"),
    "annotation that calls": body(parameters="x_ptr: open('PWNED', 'w'), n, BLOCK: tl.constexpr"),
    "annotation of a local that calls": body("y: open('PWNED', 'w') = 1"),
    "return annotation": HEADER + "@triton.jit\ndef k(x_ptr) -> open('PWNED', 'w'):\n    pass\n",
    "inline assembly": body("tl.inline_asm_elementwise('st', '=r', [o], dtype=tl.int32, is_pure=False, pack=1)"),
    "extern elementwise": body("tl.core.extern_elementwise('', '', [o], {}, is_pure=True)"),
    "printing on the device": body("tl.device_print('x', o)"),
    "printing while compiling": body("tl.static_print('x')"),
    "python's print": body("print(o)"),
    "default argument": body(parameters="x_ptr, n=open('PWNED', 'w'), BLOCK: tl.constexpr = 4"),
    "star arguments": HEADER + "@triton.jit\ndef k(*args):\n    pass\n",
    "double-star arguments": HEADER + "@triton.jit\ndef k(**kwargs):\n    pass\n",
    "keyword-only parameter": HEADER + "@triton.jit\ndef k(x, *, BLOCK: tl.constexpr):\n    pass\n",
    "starred call": body("tl.store(*[x_ptr + o, o])"),
    "double-star call": body("tl.store(x_ptr + o, o, **n)"),
    "other decorator": HEADER + "@open('PWNED')\n@triton.jit\ndef k(x):\n    pass\n",
    "decorator with arguments": HEADER + "@triton.jit(debug=open('PWNED'))\ndef k(x):\n    pass\n",
    "autotune": HEADER + "@triton.autotune([], [])\n@triton.jit\ndef k(x):\n    pass\n",
    "no decorator": HEADER + "def k(x):\n    pass\n",
    "call at module level": GOOD + "open('PWNED', 'w')\n",
    "call in a constant": GOOD + "X = open('PWNED', 'w')\n",
    "call inside tl.constexpr": GOOD + "X = tl.constexpr(open('PWNED', 'w'))\n",
    "comprehension in a constant": GOOD + "X = [i for i in range(9)]\n",
    "attribute in a constant": GOOD + "X = tl.core\n",
    "power in a constant": GOOD + "X = 9 ** 9 ** 9\n",
    "class": GOOD + "class A:\n    pass\n",
    "try": GOOD + "try:\n    pass\nexcept Exception:\n    pass\n",
    "if at module level": GOOD + "if True:\n    pass\n",
    "for at module level": GOOD + "for i in range(3):\n    pass\n",
    "assignment to an attribute": GOOD + "tl.load = 3\n",
    "del": GOOD + "del add\n",
    "import of os": "import os\n" + GOOD,
    "import as another name": GOOD.replace("import triton.language as tl", "import triton.language as tl, os as tl2"),
    "import under a trusted name": GOOD.replace("import triton\n", "import os as triton\n"),
    "import of a submodule": "from triton.language import core\n" + GOOD,
    "import star": "from triton.language import *\n" + GOOD,
    "relative import": "from .x import libdevice\n" + GOOD,
    "future import": "from __future__ import annotations\n" + GOOD,
    "import of the heuristics": "from torch._inductor.runtime import triton_heuristics\n" + GOOD,
    "import inside": body("import os"),
    "nested function": body("def inner():", "    pass"),
    "lambda": body("f = lambda: 1"),
    "walrus": body("y = (z := 1)"),
    "comprehension": body("y = [i for i in (1, 2)]"),
    "generator": body("y = (i for i in (1, 2))"),
    "f-string": body("tl.device_assert(o >= 0, f'{n}')"),
    "dictionary": body("y = {1: 2}"),
    "set": body("y = {1, 2}"),
    "global": body("global z"),
    "nonlocal": body("nonlocal z"),
    "with": body("with n:", "    pass"),
    "try inside": body("try:", "    pass", "except Exception:", "    pass"),
    "raise": body("raise n"),
    "assert": body("assert n"),
    "yield": body("yield n"),
    "await": HEADER + "@triton.jit\nasync def k(x):\n    await x\n",
    "match": body("match n:", "    case 1:", "        pass"),
    "power": body("y = 9 ** 9"),
    "matrix operator": body("y = o @ o"),
    "unknown name": body("y = open"),
    "getattr": body("y = getattr(tl, 'core')"),
    "bare module": body("y = tl"),
    "module as an argument": body("y = tl.where(o > 0, tl, 0)"),
    "module in a subscript": body("y = tl['core']"),
    "exported function that is aliased": body("f = tl.store", "f(x_ptr + o, o)"),
    "store handed on": body("y = tl.reduce(x_ptr + o, 0, tl.store)"),
    "dunder attribute": body("y = o.__class__"),
    "attribute of a value": body("y = o.handle"),
    "attribute of an own function": body("y = helper.fn", before="@triton.jit\ndef helper(a):\n    return a\n"),
    "method of an own function": body("y = helper.run(1)", before="@triton.jit\ndef helper(a):\n    return a\n"),
    "method of a string": body("y = 'x'.format(n)"),
    "string that is calculated with": body("y = 'x' * 9999999999"),
    "string as a value": body("y = 'tl.core'"),
    "bytes": body("y = b'x'"),
    "complex number": body("y = 1j"),
    "ellipsis": body("y = ..."),
    "huge integer": body("y = 99999999999999999999999"),
    "underscore local": body("_semantic = 1"),
    "underscore keyword": body("tl.load(x_ptr + o, _semantic=n)"),
    "underscore function": HEADER + "@triton.jit\ndef _k(x):\n    pass\n",
    "double underscore inside a name": body("a__b = 1"),
    "parameter that hides a module": body(parameters="tl, n, BLOCK: tl.constexpr"),
    "local that hides a module": body("libdevice = n"),
    "local that hides a builtin": body("range = n"),
    "local that hides an own function": body("helper = n", before="@triton.jit\ndef helper(a):\n    return a\n"),
    "loop variable that hides a module": body("for tl in range(3):", "    pass"),
    "function that hides a builtin": HEADER + "@triton.jit\ndef float(x):\n    pass\n",
    "function defined twice": GOOD + "@triton.jit\ndef add(a, b):\n    return a\n",
    "constant that is rebound": GOOD + "SCALE = 3\n",
    "parameter twice": HEADER + "@triton.jit\ndef k(x, x):\n    pass\n",
    "loop over something else": body("for i in o:", "    pass"),
    "assignment to an item": body("o[0] = 1"),
    "assignment to a starred name": body("a, *b = n, n"),
    "in": body("y = 1 in (1, 2)"),
    "pointer type": body("y = n.to(tl.pointer_type(tl.float32))"),
    "grid barrier": body("triton_helpers.x_grid_barrier(x_ptr)"),
    "tensor descriptor": body("d = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK])"),
    "triton's own interior": body("y = triton.runtime.driver"),
    "unicode look-alike": body("ｘ = 1"),  # noqa: RUF001
    "unicode in a comment": GOOD + "# \u202e\n",
    "encoding cookie": "# -*- coding: utf-7 -*-\n" + GOOD,
    "encoding cookie on line two": "#\n# vim: set fileencoding=utf-7 :\n" + GOOD,
    "carriage return": GOOD + "# a comment\rimport os\n",
    "form feed": "\f" + GOOD,
    "tab": GOOD.replace("    return", "\treturn"),
    "null byte": GOOD + "\0",
    "backslash": GOOD + "X = 1 + \\\n    open('PWNED')\n",
    "three single quotes": GOOD + "'''\nimport os\n'''\n",
    "not python": "def (",
    "no function": HEADER,
    "empty": "",
    "too long": GOOD + "#" * 300_000,
    "nested too deep": body("y = " + "-" * 500 + "n"),
    "deep parentheses": body("y = " + "(" * 5000 + "n" + ")" * 5000),
    "long chain of operators": body("y = " + " + ".join(["n"] * 3000)),
    "name used before any import": "import triton\n@triton.jit\ndef k(x):\n    y = tl.load(x)\n",
}
