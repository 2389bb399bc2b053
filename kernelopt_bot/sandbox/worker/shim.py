"""Repairs to Triton's interpreter, so that gates 2 and 3 are real without a GPU.

| broken in the interpreter | here |
|---|---|
| libdevice functions raise | evaluated by torch, found by the symbol that compiled code would call |
| bfloat16 arithmetic works on bit patterns, casts to it truncate | float32, rounded by torch; so are fp8 casts |
| `tl.dot` ignores `input_precision` | operands rounded to TF32 where the GPU would |
| custom reductions and scans loop over elements | halved as whole blocks: log2(n) calls of the combine function |
| sums go one by one or in float32 | combined pairwise in the element type, as the compiler does |
| `tl.device_assert` is ignored | raised |
| accesses out of bounds read garbage or kill the process | raised where the memory is known (`memcheck.py`) |
| `tl.maximum` and `tl.minimum` always keep nan | dropped, as on the GPU, unless `propagate_nan` says otherwise |
| the language is patched anew at every function call | patched once: this process only interprets |
| the table of numpy's types is built anew at every operation | looked up once a type |

`install()` is idempotent, and must run in a process started with TRITON_INTERPRET=1. What it cannot do raises.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernelopt_bot.sandbox.worker import memcheck
from kernelopt_bot.sandbox.worker.lane import interpreting
from kernelopt_bot.sandbox.worker.libdevice import evaluate_symbol
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

_installed = False


def install() -> None:
    """Patch this process's interpreter. Raises WorkerFault bad_request outside the interpreter lane."""
    global _installed
    if _installed:
        return
    if not interpreting():
        raise WorkerFault("bad_request", "this worker was not started with TRITON_INTERPRET=1")
    interpreter = importlib.import_module("triton.runtime.interpreter")
    tl = importlib.import_module("triton.language")
    numbers = _Numbers(interpreter, tl)
    numbers.patch(interpreter.InterpreterBuilder)
    _patch_reductions(interpreter, tl)
    _patch_libdevice(interpreter)
    memcheck.install(interpreter.InterpreterBuilder)
    _patch_language_once(interpreter, tl)
    _patch_types_once(interpreter)
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, debug=True, sanitize_overflow=False)
    _installed = True


class _Patched:
    """A patch scope that stays."""

    def restore(self) -> None:
        """Nothing: this process only interprets."""


def _patch_language_once(interpreter: Any, tl: Any) -> None:
    """The interpreter walks and patches all of `triton.language` at each call of each function; once is enough."""
    sees_language = types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})
    interpreter._patch_lang(sees_language)
    interpreter._patch_lang = lambda function: _Patched()
    # triton 3.6 hands int() an array of one element as a loop's bound, which numpy refuses from 2.4 on
    tl.tensor.__index__ = lambda self: int(self.handle.data.squeeze())


def _patch_types_once(interpreter: Any) -> None:
    find, known = interpreter._get_np_dtype, {}

    def numpy_type(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = find(dtype)
        return known[name]

    interpreter._get_np_dtype = numpy_type


class _Numbers:
    """Element types that numpy lacks: values converted by torch, arithmetic done in float32."""

    def __init__(self, interpreter: Any, tl: Any) -> None:
        self.interpreter, self.tl = interpreter, tl
        self.torch_types = {
            tl.float64: torch.float64, tl.float32: torch.float32, tl.float16: torch.float16,
            tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2,
        }

    def convert(self, data: Any, source: Any, target: Any) -> Any:
        """An array of `source` elements as `target` elements, rounded to nearest even."""
        from_type, to_type = self.torch_types.get(source), self.torch_types.get(target)
        as_bytes = np.array(data, order="C", copy=True)
        if from_type is None:
            tensor = torch.from_numpy(as_bytes)
        else:
            shape = as_bytes.shape
            tensor = torch.from_numpy(as_bytes.reshape(-1).view(np.uint8)).view(from_type).reshape(shape)
        numpy_type = self.interpreter._get_np_dtype(target)
        if to_type is None:
            return tensor.to(torch.float32).numpy().astype(numpy_type)
        bits = tensor.to(to_type).reshape(-1).contiguous().view(torch.uint8).numpy()
        return bits.view(numpy_type).reshape(as_bytes.shape)

    def _odd(self, scalar: Any) -> bool:
        return bool(scalar.is_floating()) and self.interpreter._get_np_dtype(scalar).kind == "u"

    def _bits(self, handle: Any) -> bool:
        """Whether a handle holds bit patterns: results of comparisons keep the operands' type but hold booleans."""
        return self._odd(handle.dtype.scalar) and handle.data.dtype.kind == "u"

    def widen(self, handle: Any) -> Any:
        scalar = handle.dtype.scalar
        if not self._bits(handle):
            return handle
        return self.interpreter.TensorHandle(self.convert(handle.data, scalar, self.tl.float32), self.tl.float32)

    def narrow(self, handle: Any, scalar: Any) -> Any:
        if not self._odd(scalar) or handle.data.dtype.kind != "f":
            return handle
        return self.interpreter.TensorHandle(self.convert(handle.data, self.tl.float32, scalar), scalar)

    def patch(self, builder: Any) -> None:
        for name in ("binary_op", "ternary_op", "unary_op", "create_fma", "create_erf", "create_rsqrt"):
            setattr(builder, name, self._widened(getattr(builder, name)))
        original_cast, numbers = builder.cast_impl, self

        def cast(self: Any, source: Any, target: Any) -> Any:
            a, b = source.dtype.scalar, target.scalar
            if a != b and (numbers._odd(a) or numbers._odd(b)):
                return numbers.interpreter.TensorHandle(numbers.convert(source.data, a, b), b)
            return original_cast(self, source, target)

        def between_floats(self: Any, source: Any, target: Any, rounding: Any) -> Any:
            a, b = source.dtype.scalar, target.scalar
            if a not in numbers.torch_types or b not in numbers.torch_types:
                raise NotImplementedError(f"the interpreter lane cannot convert {a} to {b}")
            if rounding == numbers.interpreter._ir.ROUNDING_MODE.RTZ:
                raise NotImplementedError("the interpreter lane cannot round towards zero")
            return numbers.interpreter.TensorHandle(numbers.convert(source.data, a, b), b)

        def select(self: Any, condition: Any, left: Any, right: Any) -> Any:
            data = np.where(condition.data, left.data, right.data)
            return numbers.interpreter.TensorHandle(data, right.dtype.scalar)

        def dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, imprecise: Any) -> Any:
            return numbers.interpreter.TensorHandle(
                numbers.product(a, b, str(input_precision), d.data.dtype) + d.data, d.dtype.scalar)

        def bfloat16(self: Any, value: float) -> Any:
            data = numbers.convert(np.array([value], dtype=np.float32), numbers.tl.float32, numbers.tl.bfloat16)
            return numbers.interpreter.TensorHandle(data, numbers.tl.bfloat16)

        builder.get_bf16 = bfloat16
        builder.create_maxnumf = lambda self, left, right: self.binary_op(left, right, np.fmax)
        builder.create_minnumf = lambda self, left, right: self.binary_op(left, right, np.fmin)
        builder.cast_impl, builder.create_fp_to_fp = cast, between_floats
        builder.create_select, builder.create_dot = select, dot

    def _widened(self, original: Callable[..., Any]) -> Callable[..., Any]:
        handle_type = self.interpreter.TensorHandle

        def operation(builder: Any, *arguments: Any) -> Any:
            handles = [a for a in arguments if isinstance(a, handle_type)]
            scalar = handles[-1].dtype.scalar
            if not any(self._bits(h) for h in handles):
                return original(builder, *arguments)
            wide = [self.widen(a) if isinstance(a, handle_type) else a for a in arguments]
            return self.narrow(original(builder, *wide), scalar)

        return operation

    def product(self, a: Any, b: Any, precision: str, accumulator: Any) -> Any:
        x, y = self.widen(a).data, self.widen(b).data
        if x.dtype == np.float32 and a.dtype.scalar == self.tl.float32:
            if "TF32x3" in precision:
                x_high, y_high = tf32(x), tf32(y)
                x_low, y_low = tf32(x - x_high), tf32(y - y_high)
                small = x_high @ y_low + x_low @ y_high
                # Triton drops nan here: an infinity's low part is one.
                return x_high @ y_high + np.where(np.isnan(small), 0, small)
            if "TF32" in precision:
                x, y = tf32(x), tf32(y)
        return np.matmul(x, y, dtype=accumulator)


def tf32(values: Any) -> Any:
    """float32 values rounded to the 10 mantissa bits that TF32 matrix units read (to nearest, ties away)."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _patch_reductions(interpreter: Any, tl: Any) -> None:
    narrow_types = {tl.float16, tl.bfloat16}
    original_reduce, original_scan = interpreter.ReduceOps.apply_impl, interpreter.ScanOps.apply_impl

    def combined(op: Any, left: Any, right: Any, like: Any) -> tuple[Any, ...]:
        tensors = [tuple(op.to_tensor(d, t.dtype) for d, t in zip(side, like, strict=True)) for side in (left, right)]
        result = op.combine_fn.fn(*tensors[0], *tensors[1])
        result = result if isinstance(result, tuple) else (result,)
        return tuple(np.broadcast_to(r.handle.data, d.shape).astype(d.dtype) if hasattr(r, "handle")
                     else np.full(d.shape, r, d.dtype) for r, d in zip(result, left, strict=True))

    def tree_reduce(self: Any, tensors: Any) -> Any:
        axis = self.axis
        data = tuple(t.handle.data for t in tensors)
        rank = data[0].ndim
        if axis is None:
            data, axis = tuple(d.reshape(-1) for d in data), 0
        axis = int(axis) % data[0].ndim
        while (n := data[0].shape[axis]) > 1:
            if n % 2:
                raise NotImplementedError(f"a reduction over {n} elements, which is not a power of two")
            even, odd = (tuple(np.take(d, range(start, n, 2), axis) for d in data) for start in (0, 1))
            data = combined(self, even, odd, tensors)
        if self.keep_dims:
            data = data if self.axis is not None else tuple(d.reshape((1,) * rank) for d in data)
        else:
            data = tuple(np.squeeze(d, axis) for d in data)
        return [self.to_tensor(d if d.ndim else d.item(), t.dtype) for d, t in zip(data, tensors, strict=True)]

    def doubling_scan(self: Any, tensors: Any) -> Any:
        data = tuple(t.handle.data for t in tensors)
        axis = int(self.axis) % data[0].ndim
        position = np.arange(data[0].shape[axis]).reshape([-1 if d == axis else 1 for d in range(data[0].ndim)])
        step = 1
        while step < data[0].shape[axis]:
            earlier = tuple(np.roll(d, step, axis) for d in data)
            new = combined(self, earlier, data, tensors)
            data = tuple(np.where(position >= step, a, b) for a, b in zip(new, data, strict=True))
            step *= 2
        return [self.to_tensor(d, t.dtype) for d, t in zip(data, tensors, strict=True)]

    def in_element_type(tensors: Any) -> bool:
        return any(t.dtype.scalar in narrow_types for t in tensors)

    def reduce(self: Any, tensors: Any) -> Any:
        # numpy adds one after the other along all axes but the last.
        floats = self.combine_fn == tl.standard._sum_combine and tensors[0].dtype.scalar.is_floating()
        pairwise = floats or in_element_type(tensors)
        return tree_reduce(self, tensors) if pairwise else original_reduce(self, tensors)

    def scan(self: Any, tensors: Any) -> Any:
        if not in_element_type(tensors):
            return original_scan(self, tensors)

        def flipped(ts: Any) -> Any:
            return [self.to_tensor(np.flip(t.handle.data, self.axis), t.dtype) for t in ts] if self.reverse else ts

        return flipped(doubling_scan(self, flipped(tensors)))

    interpreter.ReduceOps.generic_reduce, interpreter.ReduceOps.apply_impl = tree_reduce, reduce
    interpreter.ScanOps.generic_scan, interpreter.ScanOps.apply_impl = doubling_scan, scan


def _patch_libdevice(interpreter: Any) -> None:
    """Calls of libdevice reach the builder as extern_elementwise; kernels see functions that need no `_semantic`."""
    handle_type = interpreter.TensorHandle

    def extern(self: Any, library: str, path: str, symbol: str, arguments: Any, result: Any, pure: bool) -> Any:
        values = evaluate_symbol(symbol, [a.data for a in arguments], interpreter._get_np_dtype(result.scalar))
        return handle_type(values, result.scalar)

    interpreter.InterpreterBuilder.create_extern_elementwise = extern
    semantic = importlib.import_module("triton.language.semantic").TritonSemantic(interpreter.interpreter_builder)
    real = importlib.import_module("triton.language.extra.cuda.libdevice")
    module = types.ModuleType("kernelopt_bot_libdevice")
    for name, function in inspect.getmembers(real, callable):
        if not name.startswith("_") and getattr(function, "__module__", "") == real.__name__:
            setattr(module, name, _bound(function, semantic))
    compat = importlib.import_module("torch._inductor.runtime.triton_compat")
    helpers = importlib.import_module("torch._inductor.runtime.triton_helpers")
    extra = importlib.import_module("triton.language.extra")
    for holder in (compat, helpers, extra, importlib.import_module("triton.language.extra.cuda")):
        holder.libdevice = module  # type: ignore[attr-defined]


def _bound(function: Callable[..., Any], semantic: Any) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        keywords["_semantic"] = semantic
        return function(*arguments, **keywords)

    return call
