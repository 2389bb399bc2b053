from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelopt_bot.compiler.instrument import HOOK, instrument

WRAPPERS = sorted((Path(__file__).parents[1] / "data" / "wrappers").glob("*.py"))

TEXT = """\
aten = torch.ops.aten
alloc_from_pool = torch.ops.inductor._alloc_from_pool
async_compile = AsyncCompile()
triton_0 = async_compile.triton('k', 'source')
cpp_1 = async_compile.cpp_pybinding(['float*'], 'source')
extern_kernels.setup()

class Runner:
    def call(self, args):
        \u00fc = aten.sort.default(x); y = extern_kernels.mm(a, f(b), out=c)
        triton_0.run(a, 4, stream=stream0)
        cpp_1()
        z = torch.ops.aten.add.Tensor(
            a,
            b)
        buf = alloc_from_pool(pool, 0)
        w = empty_strided_cpu((2, ), (1, ), torch.float32)
"""


def test_kernel_and_vendor_calls_inside_functions_are_found() -> None:
    sites = instrument(TEXT).sites
    assert [(s.line, s.callee, s.kind, s.function) for s in sites] == [
        (10, "aten.sort.default", "vendor", "call"), (10, "extern_kernels.mm", "vendor", "call"),
        (11, "triton_0", "kernel", "call"), (12, "cpp_1", "kernel", "call"),
        (13, "torch.ops.aten.add.Tensor", "vendor", "call")]
    assert [s.index for s in sites] == list(range(5))


def test_the_hook_gets_site_callee_and_arguments_in_order() -> None:
    seen: list[tuple[object, ...]] = []

    def hook(site: int, callee: object, *args: object, **kwargs: object) -> object:
        seen.append((site, callee, args, kwargs))
        return "result"

    text = instrument("async_compile = A\nk = async_compile.triton('k', '')\n"
                      "def call(k, x):\n    return k.run(x, *[1, 2], last=3), k.run()\n").text
    names: dict[str, object] = {HOOK: hook, "A": type("A", (), {"triton": staticmethod(lambda *a: None)})}
    exec(compile(text, "text", "exec"), names)
    kernel = type("K", (), {"run": "callee"})
    assert names["call"](kernel, "x") == ("result", "result")  # type: ignore[operator]
    assert seen == [(0, "callee", ("x", 1, 2), {"last": 3}), (1, "callee", (), {})]


@pytest.mark.parametrize("path", WRAPPERS, ids=lambda p: p.stem)
def test_lines_stay_and_nothing_else_changes(path: Path) -> None:
    source = path.read_text()
    found = instrument(source)
    old, new = source.splitlines(), found.text.splitlines()
    assert len(old) == len(new) and found.sites
    touched = {n + 1 for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b}
    assert touched == {s.line for s in found.sites}

    class Undo(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.Call:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and node.func.id == HOOK:
                return ast.Call(node.args[1], node.args[2:], node.keywords)
            return node

    assert ast.dump(Undo().visit(ast.parse(found.text))) == ast.dump(ast.parse(source))


def test_partitions_are_walked() -> None:
    path = next(p for p in WRAPPERS if "partition" in p.stem)
    assert {s.function for s in instrument(path.read_text()).sites} >= {"partition_0"}
