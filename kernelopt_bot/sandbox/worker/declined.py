"""Models that are left alone, and why: what no gate could judge, or what `torch.compile` does not see as one model."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from kernelopt_bot.sandbox.worker.protocol import WorkerFault

_WRAPPERS = {"DistributedDataParallel": "its `module`", "DataParallel": "its `module`",
             "FullyShardedDataParallel": "its `module`", "FSDPModule": "the model before `fully_shard`"}
"""Class of torch -> what to name instead."""
_QUANTISED = ("torch.ao.nn.", "torch.nn.quantized", "torch.nn.intrinsic.quantized")
_SPREAD = ("process group has not been initialized", "FSDP needs ")
"""What torch says where a wrapper is made outside of `torchrun`."""
_NO_GPU = "0 active drivers"
"""What Triton says of a launch on a machine without a GPU."""


def look(model: nn.Module) -> None:
    """Raises WorkerFault (declined) for wrappers of several processes and quantised or complex models."""
    for name, module in model.named_modules():
        where = f"{name or 'the model itself'} is a {type(module).__module__}.{type(module).__qualname__}"
        for kind in type(module).__mro__:
            if kind.__name__ in _WRAPPERS and kind.__module__.startswith("torch."):
                raise WorkerFault("declined", f"models spread over processes or devices are not taken: {where}",
                                  f"name the model inside of it: {_WRAPPERS[kind.__name__]}, on one device")
        own = f"{type(module).__module__}."
        if own.startswith(_QUANTISED) and ".quantized." in own:
            raise _quantised(where)
        if type(module).__module__.startswith("torch.jit."):
            raise WorkerFault("declined", f"TorchScript is not taken: {where}",
                              "name the model as it is before torch.jit.script or torch.jit.trace")
    look_at("parameter", model.named_parameters())
    look_at("buffer", ((n, b) for n, b in model.named_buffers() if not b.is_complex()))


def look_at(what: str, named: Iterable[tuple[str, Tensor]]) -> None:
    """Raises WorkerFault (declined) for tensors of a kind that inputs are not drawn of, or not compared. Complex
    outputs are compared by their parts."""
    for name, tensor in named:
        which = " ".join(filter(None, ("the", what, name)))
        where = f"{which} is {str(tensor.dtype).removeprefix('torch.')}"
        if tensor.is_complex() and what != "output":
            raise WorkerFault("declined", f"complex parameters and inputs are not taken: {where}",
                              "let forward take torch.view_as_real of it; complex values inside and outputs are kept")
        if tensor.is_quantized:
            raise _quantised(where)
        if hasattr(type(tensor), "__tensor_flatten__"):
            kind = type(tensor).__name__
            raise WorkerFault("declined", f"tensors of other classes are not taken: {which} is a {kind}",
                              "name the model before it is quantised or sharded")


def _quantised(where: str) -> WorkerFault:
    return WorkerFault("declined", f"quantised models are not taken: {where}",
                       "name the model before it is quantised: its kernels are the library's, and stay")


def recognised(what: str, words: str) -> WorkerFault | None:
    """What the user's code raised, where it comes from a kind of model that is left alone."""
    if any(w in words for w in _SPREAD):
        return WorkerFault("declined", f"models spread over processes or devices are not taken: {what}: it wants other "
                           "processes", "name the model inside the wrapper")
    if _NO_GPU in words:
        return WorkerFault("declined", f"{what}: it launches a Triton kernel, which takes a GPU",
                           "run this on a machine with a GPU, or give CPU tensors a way without the kernel")
    return None
