"""What Inductor itself emits must be expressible: its kernels, with the decorator and the imports of a candidate."""

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Kernel
from kernelopt_bot.contract import flow, source
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail
from tests.contract.sources import HEADER

DATA = sorted((Path(__file__).parents[1] / "playbook" / "data").rglob("*.json"))
assert DATA

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 40)
        self.norm = nn.LayerNorm(40)

    def forward(self, x, i, j):
        long = torch.cat([x, x * 2], 1)
        return (
            self.norm(self.table(i)), F.gelu(x, approximate="tanh"), torch.softmax(long, 1), x.argmax(1), x.var(1),
            torch.cumsum(x, 1), torch.cumprod(x[:, :7], 1), F.max_pool2d(x[None, None], 3), x.prod(1), x.any(1),
            x.sort(1), torch.zeros(50, 40).index_add(0, i, x[:9]),
            torch.bucketize(x, j), x.logcumsumexp(1), torch.pow(x, 2.5), torch.fmod(x, 2.0), torch.floor(x) // 2,
            torch.copysign(x, -x), x.sign() * torch.signbit(x), torch.where(x.isnan(), x.isinf(), x > 0),
            x.to(torch.bfloat16).exp().float(), torch.erf(x), torch.atan2(x, x + 1), torch.lgamma(x), x.abs().sqrt(),
            torch.roll(x, 3, 1), x.flip(1), F.pad(x, (1, 2)), F.interpolate(x[None, None], scale_factor=2), x.amax(0),
            x.std(0), torch.logsumexp(x, 1), x.median(1), torch.gather(x, 1, i[:, None] % 7), x.int() >> 2,
            F.avg_pool2d(x[None, None], 3), torch.frexp(x), x.norm(dim=1), F.silu(x) + F.softplus(x) + F.elu(x))

def get_inputs():
    return [torch.randn(12, 40), torch.randint(0, 50, (9,)), torch.linspace(-1, 1, 20)]
"""


def plain(name: str) -> str:
    """The name as a candidate must spell it."""
    while "__" in name:
        name = name.replace("__", "_")
    return "u" + name if name.startswith("_") else name


def as_candidate(text: str) -> str:
    """The functions of an Inductor kernel with a candidate's decorator, imports and names."""
    functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    for function in functions:
        function.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    for node in (n for f in functions for n in ast.walk(f)):
        for name in ("id", "name", "arg"):
            value = getattr(node, name, None)
            if isinstance(value, str):
                setattr(node, name, plain(value))
    return HEADER + "\n\n".join(ast.unparse(f) for f in functions)


def check_flow(kernel: Kernel) -> None:
    functions = source.functions(as_candidate(kernel.source))
    pointers = frozenset(n for n, t in kernel.signature.items() if t.startswith("*"))
    found = flow.analyse(functions, plain(kernel.function), pointers)
    assert found.unknown == set()
    names = source.runtime_parameters(functions[plain(kernel.function)])
    assert tuple(n for n in names if n in found.stored) == kernel.written


@pytest.mark.parametrize("path", DATA, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_captured_kernels(path: Path) -> None:
    for call in json.loads(path.read_text())["calls"]:
        assert source.check(as_candidate(call["source"])) == []


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    root = tmp_path_factory.mktemp("many")
    (root / "many.py").write_text(MODEL)
    with Worker("model", python=sys.executable, jail=ProcessJail(), scratch=tmp_path_factory.mktemp("scratch"),
                readable=(root,)) as worker:
        worker.call("load", {"root": str(root), "path": "many.py", "entry": "Model", "inputs": "get_inputs",
                             "init": "", "mode": "inference", "device": "cpu", "seed": 1}, timeout=120)
        captured = worker.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": 0}, timeout=280)
    found: list[dict[str, Any]] = captured["graphs"]
    return found


@pytest.mark.slow
def test_forty_families_of_operators(graphs: list[dict[str, Any]]) -> None:
    kernels = [k for g in graphs for k in parse_graph({**g, "calls": []}).kernels.values() if "@triton" in k.source]
    assert len(kernels) > 10
    texts = [as_candidate(k.source) for k in kernels]
    assert {v.message for t in texts for v in source.check(t)} == set()
    for kernel in kernels:
        check_flow(kernel)
