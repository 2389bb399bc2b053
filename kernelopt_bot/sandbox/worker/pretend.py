"""A machine without a GPU pretends to have one, so that Inductor generates Triton for it.

Dynamo and AOTAutograd run on real CPU tensors; each inner graph is copied, moved to a CUDA device in its
metadata, and handed to Inductor while `fake_cuda` answers its questions about the device. The wrapper's text is
taken before it would be loaded. What runs is the original graph, interpreted on the CPU.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._inductor.runtime.hints
import torch.utils._triton
from torch import Tensor, fx
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map
from triton.runtime import driver

CUDA = torch.device("cuda", 0)


def _properties(name: str, capability: tuple[int, int], multiprocessors: int, threads: int, shared: int,
                l2_bytes: int, memory: int) -> SimpleNamespace:
    return SimpleNamespace(
        name=name, major=capability[0], minor=capability[1], multi_processor_count=multiprocessors,
        regs_per_multiprocessor=65536, max_threads_per_multi_processor=threads, max_threads_per_block=1024,
        warp_size=32, total_memory=memory, shared_memory_per_block=49152, shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024, L2_cache_size=l2_bytes, gcnArchName="",
    )


ARCHITECTURES = {
    "sm_80": _properties("NVIDIA A100", (8, 0), 108, 2048, 166912, 40 * 2**20, 80 * 2**30),
    "sm_89": _properties("NVIDIA L4", (8, 9), 58, 1536, 101376, 48 * 2**20, 24 * 2**30),
    "sm_90": _properties("NVIDIA H200", (9, 0), 132, 2048, 232448, 60 * 2**20, 141 * 2**30),
}
"""Device properties by architecture. Limits per multiprocessor from the CUDA C++ Programming Guide's table of
technical specifications; counts and L2 sizes from NVIDIA's architecture whitepapers (the H200's as torch reports
them)."""

CONFIG: dict[str, Any] = {"compile_threads": 1, "shape_padding": False, "joint_graph_constant_folding": False,
                          "layout_optimization": False}
"""Inductor options without which it would run something on the device that is not there, or (layouts) expect strides
of a convolution that only the device's library gives."""


class _Driver:
    """Stands in for Triton's active driver."""

    def __init__(self, properties: SimpleNamespace) -> None:
        from triton.backends.compiler import GPUTarget

        self._capability = (properties.major, properties.minor)
        self._target = GPUTarget("cuda", 10 * properties.major + properties.minor, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return CUDA

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self._capability

    @staticmethod
    def is_active() -> bool:
        return True


def _forget_answers() -> None:
    """Clear the cached answers to "is there a GPU, and which": they differ inside and outside."""
    create = torch._inductor.runtime.hints.DeviceProperties.create
    for function in (*vars(torch.utils._triton).values(), create, getattr(create, "__func__", None)):
        clear = getattr(function, "cache_clear", None)
        if clear is not None:
            clear()


@contextlib.contextmanager
def fake_cuda(architecture: str = "sm_90", cuda_version: str = "13.0") -> Iterator[None]:
    """Within the block torch, Inductor and Triton answer as if there were one GPU of `architecture`.

    Nothing can run on it. Raises KeyError for an architecture that is not in ARCHITECTURES.
    """
    properties = ARCHITECTURES[architecture]
    # Inductor traces its own patterns when first asked: on the CPU, before the pretence begins
    joint_graph.lazy_init(None)
    post_grad.lazy_init()

    def the_properties(*_: Any, **__: Any) -> SimpleNamespace:
        return properties

    def zero(*_: Any, **__: Any) -> int:
        return 0

    def one(*_: Any, **__: Any) -> int:
        return 1

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def capability(*_: Any) -> tuple[int, int]:
        return properties.major, properties.minor

    def random_state(*_: Any) -> Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    cuda: dict[str, Any] = {
        "is_available": lambda: True, "device_count": one, "current_device": zero,
        "get_device_properties": the_properties,
        "get_device_capability": capability, "get_rng_state": random_state, "set_rng_state": nothing,
        "_exchange_device": zero, "_maybe_exchange_device": zero, "synchronize": nothing,
    }
    interface: dict[str, Any] = {"get_device_properties": the_properties, "current_device": zero, "device_count": one,
                                 "get_raw_stream": zero}
    values: dict[str, Any] = {
        "torch._C._cuda_cudaCachingAllocator_is_enabled": lambda *_: True,
        "torch.version.cuda": cuda_version,
        "torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init": property(lambda _: True),
        "torch._subclasses.fake_tensor.init_gpu_context": nothing,
        "torch._inductor.fx_passes.joint_graph.lazy_init": nothing,
    }
    with contextlib.ExitStack() as stack:
        for name, answer in cuda.items():
            stack.enter_context(mock.patch(f"torch.cuda.{name}", answer))
        # these two classes bind the functions above when they are made
        for name, answer in interface.items():
            stack.enter_context(mock.patch.object(CudaInterface, name, staticmethod(answer)))
        for name in ("get_device_properties", "current_device"):
            stack.enter_context(mock.patch.object(CudaInterface.Worker, name, staticmethod(interface[name])))
        for target, answer in values.items():
            stack.enter_context(mock.patch(target, answer, create=target.startswith("torch._C.")))
        stack.enter_context(mock.patch.object(driver, "_active", _Driver(properties)))
        _forget_answers()
        try:
            yield
        finally:
            _forget_answers()


def _moved(value: Any) -> Any:
    return CUDA if isinstance(value, torch.device) and value.type == "cpu" else value


def _fake(value: Any, mode: FakeTensorMode) -> Any:
    """A CPU tensor's counterpart on the pretended device: same dtype, shape, strides."""
    if not (isinstance(value, Tensor) and value.device.type == "cpu"):
        return value
    like = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return FakeTensor(mode, like, CUDA)


def _retarget(gm: fx.GraphModule, mode: FakeTensorMode) -> fx.GraphModule:
    gm = copy.deepcopy(gm)
    for node in gm.graph.nodes:
        node.args = fx.node.map_aggregate(node.args, _moved)
        node.kwargs = fx.node.map_aggregate(node.kwargs, _moved)
        if "val" in node.meta and node.op != "get_attr":
            node.meta["val"] = tree_map(lambda v: _fake(v, mode), node.meta["val"])
    gm.recompile()
    return gm


class _Unloaded:
    """What Inductor gets in place of the loaded wrapper."""

    __file__ = "<pretended>"

    def call(self, args: list[Any]) -> Any:
        raise RuntimeError("a wrapper for a pretended GPU was called")


def generate(gm: fx.GraphModule, example_inputs: Sequence[Any], architecture: str, **settings: Any) -> str:
    """The wrapper's text that Inductor makes of an inner graph for a pretended GPU."""
    mode = next(n.meta["val"].fake_mode for n in gm.graph.nodes if isinstance(n.meta.get("val"), FakeTensor))
    texts: list[str] = []

    def take(graph: GraphLowering) -> _Unloaded:
        wrapper, _ = graph.codegen_with_cpp_wrapper() if graph.cpp_wrapper else graph.codegen()
        texts.append(wrapper.value)
        return _Unloaded()

    with fake_cuda(architecture), mock.patch.object(GraphLowering, "compile_to_module", take):
        moved = _retarget(gm, mode)
        with mode:
            examples = [_fake(x, mode) for x in example_inputs]
        with warnings.catch_warnings():
            # advice for a GPU that is not there
            warnings.filterwarnings("ignore", message="TensorFloat32")
            compile_fx_inner(moved, examples, **settings)
    return texts[0] if texts else ""


def interpreter(gm: fx.GraphModule) -> Callable[[list[Any]], list[Any]]:
    """The inner graph itself as a boxed callable on the CPU."""
    reference = copy.deepcopy(gm)

    def run(args: list[Any]) -> list[Any]:
        values = list(args)
        args.clear()
        with torch.no_grad():
            return list(fx.Interpreter(reference).run(*values))

    return run
