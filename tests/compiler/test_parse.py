from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelopt_bot.compiler.parse import parse_graph, tensor_meta, written_parameters
from kernelopt_bot.errors import InputError
from tests.compiler.programs import graph_json


def tensor(shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return {"dtype": dtype, "shape": shape, "stride": strides, "offset": 0, "storage_bytes": 4 * shape[0] * strides[0],
            "device": "cuda:0"}


def argument(meta: dict[str, Any] | None = None, value: Any = None) -> dict[str, Any]:
    return {"tensor": meta, "value": value, "stats": None, "saved": None}


def test_steps_of_an_inference_graph(inference: str) -> None:
    graph = parse_graph(graph_json(inference))
    order = [s.kind for s in graph.steps if s.kind in ("kernel", "vendor", "allocation", "view")]
    assert order == ["allocation", "kernel", "allocation", "vendor", "view", "kernel", "allocation", "vendor", "view",
                     "kernel"]
    assert [s.index for s in graph.steps] == list(range(len(graph.steps)))
    norm = next(s for s in graph.steps if s.kind == "kernel")
    assert (norm.name, norm.function, len(norm.hash)) == ("triton_per_fused_native_layer_norm_0", "call", 24)
    assert [(a.name, a.buffer, a.value) for a in norm.arguments] == [
        ("in_ptr0", "arg2_1", None), ("in_ptr1", "arg0_1", None), ("in_ptr2", "arg1_1", None),
        ("out_ptr2", "buf3", None), ("xnumel", "", 1024), ("r0_numel", "", 256)]
    line = inference.split("\n")[norm.lines[0] - 1]
    assert line.strip().startswith("triton_per_fused_native_layer_norm_0.run(")
    assert graph.source == inference


def test_kernels(inference: str, backward: str) -> None:
    graph = parse_graph(graph_json(inference))
    assert {k.heuristic for k in graph.kernels.values()} == {"persistent_reduction", "pointwise"}
    norm = graph.kernels["triton_per_fused_native_layer_norm_0"]
    assert norm.written == ("out_ptr2",) and norm.origin == "native_layer_norm"
    assert norm.size_hints == {"x": 1024, "r0_": 256} and norm.signature["in_ptr0"] == "*fp32"
    assert graph.kernels["triton_poi_fused_addmm_gelu_view_1"].written == ("in_out_ptr0",)
    looped = parse_graph(graph_json(backward)).kernels
    name = "triton_red_fused_native_layer_norm_native_layer_norm_backward_view_4"
    assert looped[name].written == ("out_ptr0", "out_ptr1") and looped[name].heuristic == "reduction"


def test_views_share_the_buffer_of_what_they_view(inference: str) -> None:
    graph = parse_graph(graph_json(inference))
    gelu = [s for s in graph.steps if s.kind == "kernel"][1]
    assert gelu.arguments[0].expression == "buf5" and gelu.arguments[0].buffer == "buf4"


def test_recorded_arguments_and_operations(inference: str) -> None:
    lines = inference.split("\n")
    at = {name: next(i for i, text in enumerate(lines, 1) if text.strip().startswith(name + "("))
          for name in ("triton_per_fused_native_layer_norm_0.run", "extern_kernels.mm")}
    calls = [
        {"line": at["triton_per_fused_native_layer_norm_0.run"], "callee": "triton_per_fused_native_layer_norm_0",
         "arguments": [*(argument(tensor(s)) for s in ([8, 128, 256], [256], [256], [8, 128, 256])),
                       argument(value=1024), argument(value=256)], "keywords": {}},
        {"line": at["extern_kernels.mm"], "callee": "extern_kernels.mm",
         "arguments": [argument(tensor([1024, 256])), argument(tensor([256, 1024]))],
         "keywords": {"out": argument(tensor([1024, 1024]))}}]
    inputs = [{"name": "arg0_1", "qualified": "n.weight", "kind": "parameter", "tensor": tensor([256]),
               "mutated": False}]
    graph = parse_graph(graph_json(inference, calls, inputs=inputs, outputs=[tensor([8, 128, 256]), None]))
    norm = next(s for s in graph.steps if s.kind == "kernel")
    assert norm.arguments[0].tensor is not None and norm.arguments[0].tensor.shape == (8, 128, 256)
    product, other = (s for s in graph.steps if s.kind == "vendor")
    assert product.flops == 2 * 1024 * 256 * 1024 and other.flops is None
    assert [a.name for a in product.arguments] == ["0", "1", "out"] and product.arguments[2].buffer == "buf4"
    assert graph.inputs[0].qualified == "n.weight" and graph.outputs[1] is None
    plain = next(s for s in parse_graph(graph_json(inference)).steps if s.kind == "kernel")
    assert norm.hash == plain.hash


def test_partitions_stand_where_they_are_called(partitioned: str) -> None:
    graph = parse_graph(graph_json(partitioned))
    functions = [s.function for s in graph.steps]
    first, last = functions.index("partition_0"), len(functions) - functions[::-1].index("partition_0")
    assert set(functions[first:last]) == {"partition_0"} and "call" in functions[:first] and "call" in functions[last:]
    assert [s.kind for s in graph.steps].count("kernel") == 3


def test_stores_through_locals_are_found() -> None:
    source = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(a, b, c, n):\n" \
             "    p = b + tl.program_id(0) * n\n    x = tl.load(a)\n    tl.store(p, x)\n    tl.atomic_add(c, x)\n"
    assert written_parameters(source, "k", frozenset("abc")) == ("b", "c")
    assert written_parameters(source, "other", frozenset("abc")) == ()


@pytest.mark.parametrize("change", [
    {"source": "def ("}, {"source": None}, {"inputs": [{}]}, {"outputs": [{"dtype": "float32"}]}, {"calls": [{}]}])
def test_what_cannot_be_read_is_said(inference: str, change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        parse_graph({**graph_json(inference), **change})
    assert caught.value.kind == "unsupported" and caught.value.fix


def test_a_recording_of_another_wrapper_is_refused(inference: str) -> None:
    step = next(s for s in parse_graph(graph_json(inference)).steps if s.kind == "kernel")
    call = {"line": step.lines[0], "callee": step.name, "arguments": [argument(value=1)], "keywords": {}}
    with pytest.raises(InputError):
        parse_graph(graph_json(inference, [call]))


def test_tensor_meta() -> None:
    meta = tensor_meta(tensor([2, 3]))
    assert meta is not None and meta.numel == 6 and meta.stride == (3, 1)
    assert tensor_meta(None) is None


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(32), nn.Conv1d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.conv(nn.functional.gelu(self.norm(x))), torch.softmax(x @ x.transpose(1, 2), -1) @ x


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A C++ wrapper of this machine, run with its calls recorded by the product's own recorder."""
    from kernelopt_bot.compiler.instrument import instrument

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    texts: list[str] = []

    def inner(gm: Any, examples: Any, **settings: Any) -> Any:
        compiled = compile_fx_inner(gm, examples, **settings)
        texts.append(str(getattr(compiled, "source_code", "")))
        return compiled

    torch._dynamo.reset()
    model, x = Mixed().eval(), torch.randn(4, 8, 32)
    with torch.no_grad(), torch._functorch.config.patch(enable_autograd_cache=False):
        torch.compile(model, backend=lambda gm, ex: compile_fx(
            gm, ex, inner_compile=inner, config_patches={"fx_graph_cache": False}))(x)
    done = instrument(texts[0])
    calls: list[dict[str, Any]] = []

    def describe(value: Any) -> dict[str, Any]:
        if not isinstance(value, torch.Tensor):
            return argument(value=copy.copy(value) if isinstance(value, (int, float, bool, str)) else None)
        return argument({"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
                         "stride": list(value.stride()), "offset": value.storage_offset(),
                         "storage_bytes": value.untyped_storage().nbytes(), "device": str(value.device)})

    def hook(site: int, callee: Any, *args: Any, **kwargs: Any) -> Any:
        at = done.sites[site]
        calls.append({"line": at.line, "callee": at.callee, "arguments": [describe(a) for a in args],
                      "keywords": {k: describe(v) for k, v in kwargs.items()}})
        return callee(*args, **kwargs)

    path = Path(tmp_path_factory.mktemp("wrapper")) / "wrapper.py"
    path.write_text(done.text)
    space: dict[str, Any] = {"__name__": "wrapper", "__file__": str(path), "_kernelopt_hook": hook}
    exec(compile(done.text, str(path), "exec"), space)
    state = dict(model.named_parameters())
    names = [n for n in texts[0].split("def get_args():")[1].split("return [")[1].split("]")[0].split(", ")]
    shapes = {tuple(v.shape): v.detach() for v in (x, *state.values())}
    sized = {n: texts[0].split(f"{n} = rand_strided(")[1].split(")")[0] for n in names}
    arguments = [shapes[tuple(int(p) for p in sized[n].strip("(").split(",") if p.strip())] for n in names]
    space["call"](list(arguments))
    yield graph_json(texts[0], calls)


def test_a_cpu_graph(captured: dict[str, Any]) -> None:
    graph = parse_graph(captured)
    kernels = [s for s in graph.steps if s.kind == "kernel"]
    assert kernels and all(graph.kernels[s.name].heuristic == "cpp" for s in kernels)
    assert all(a.tensor is not None for s in kernels for a in s.arguments if a.buffer)
    assert all(graph.kernels[s.name].written for s in kernels)
    flops = {s.name.split(".")[-1]: s.flops for s in graph.steps if s.kind == "vendor"}
    assert flops["bmm"] == 2 * 4 * 8 * 8 * 32
    assert flops["convolution"] == 2 * 4 * 4 * 30 * 8 * 3
