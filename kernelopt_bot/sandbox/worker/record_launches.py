"""Records the launches of a user's Triton kernel while a function or a test of the repository runs.

Triton's own objects are watched, not the user's module: a kernel counts by its file and name, whatever it is imported
as. Where a launch goes through `@triton.autotune` or `@triton.heuristics`, what reaches the kernel itself is recorded.
Without a GPU kernels run under Triton's interpreter, and an autotuner takes its first configuration.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.lane import interpreting
from kernelopt_bot.sandbox.worker.load import import_file, user_code
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.seeds import seed_everything

MOST_DISTINCT = 16
"""Distinct calls: every one of them is checked."""
DETAIL = 4000
"""Characters kept of the end of what pytest says of a test that fails."""
OPTIONS: Mapping[str, int] = {"num_warps": 4, "num_stages": 3}
"""Launch options that are recorded, with Triton's defaults for CUDA."""
IGNORED = {"num_ctas": 1, "maxnreg": None, "enable_fp_fusion": True, "launch_cooperative_grid": False, "debug": False,
           "launch_pdl": False, "ir_override": None, "sanitize_overflow": True}
"""Options that may be given with these values, which are Triton's defaults, and with no others."""


@dataclass
class Call:
    """The first of equal launches. `outer` is the object that the host launched, `given` what it gave it."""

    facts: dict[str, Any]
    outer: Any
    given: tuple[tuple[Any, ...], dict[str, Any]]
    count: int = 1


@dataclass
class Watch:
    """What was seen of one kernel."""

    path: str
    kernel: str
    scratch: tensors.Scratch
    limit: int
    calls: dict[str, Call] = field(default_factory=dict)
    """In the order of their first launch."""
    empty: int = 0
    """Launches over no elements: of no program, or with an argument of no element."""
    dry: bool = False
    """Whether launches are described and not made."""
    depth: int = 0
    fault: WorkerFault | None = None
    """What a launch was refused for: the user's code, and pytest, may catch it."""
    last: dict[str, Any] | None = None
    """The last launch that reached the kernel below the present one: after an autotuner's trials, what it chose."""
    before: list[Tensor] = field(default_factory=list)
    """Copies of the tensors before the present launch, in the order of `sources`."""
    sources: list[Tensor] = field(default_factory=list)

    def mine(self, function: Any) -> bool:
        inner = _python(function)
        code = getattr(inner, "__code__", None)
        return (code is not None and inner.__name__ == self.kernel
                and os.path.realpath(code.co_filename) == self.path)

    def outside(self, outer: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A launch by the host."""
        self.last = None
        self.sources = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        if not self.dry:
            self.before = tensors.clone_all(self.sources)
        self.depth += 1
        try:
            result = run(outer, *args, **kwargs)
            if self.last is not None and not self.dry:
                self._note(outer, args, kwargs)
        except WorkerFault as e:
            self.fault = self.fault or e
            raise
        finally:
            self.depth -= 1
        self.before, self.sources = [], []
        return result

    def inside(self, function: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A launch of the kernel itself."""
        if not kwargs.get("warmup"):
            self.last = described(function, args, kwargs)
        if self.dry:
            return None
        if self.last is not None and min(self.last["grid"], default=0) < 1:
            return None
        return run(function, *args, **kwargs)

    def _note(self, outer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert self.last is not None
        values = self.last.pop("values")
        if min(self.last["grid"], default=0) < 1 or any(isinstance(v, Tensor) and not v.numel()
                                                        for v in values.values()):
            self.empty += 1
            return
        storages: dict[tuple[str, int], str] = {}
        arguments = {n: self._argument(v, storages, save=False) for n, v in values.items()}
        key = repr((arguments, sorted(self.last["constexprs"].items(), key=str), self.last["grid"],
                    self.last["options"]))
        if key in self.calls:
            self.calls[key].count += 1
            return
        if len(self.calls) == MOST_DISTINCT:
            raise WorkerFault("unsupported", f"{self.kernel} is launched in more than {MOST_DISTINCT} distinct ways: "
                              "record fewer, those that matter")
        storages.clear()
        saved = {n: self._argument(v, storages, save=True) for n, v in values.items()}
        self.calls[key] = Call({**self.last, "arguments": saved}, outer, (args, kwargs))

    def _argument(self, value: Any, storages: dict[tuple[str, int], str], *, save: bool) -> dict[str, Any]:
        if not isinstance(value, Tensor):
            return {"value": value}
        place = storages.setdefault(tensors.storage_key(value), f"storage{len(storages)}")
        made: dict[str, Any] = {"tensor": {**tensors.meta(value)}, "storage": place,
                                "aligned": value.data_ptr() % 16 == 0}
        if save:
            then = next((b for b, s in zip(self.before, self.sources, strict=True) if s is value), value)
            small = then.untyped_storage().nbytes() <= self.limit
            made |= {"stats": tensors.stats(then), "saved": tensors.save(self.scratch, then) if small else None}
        return made


def _python(function: Any) -> Any:
    """The Python function below Triton's wrappers."""
    for _ in range(8):
        if inspect.isfunction(function):
            return function
        function = getattr(function, "fn", None)
    return function


def described(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """One launch: {values: run-time arguments by name, constexprs, grid, callable_grid, options}.

    Raises WorkerFault unsupported for kinds of argument that the gates cannot make.
    """
    names = list(function.arg_names)
    given = {k: v for k, v in kwargs.items() if k not in ("grid", "warmup")}
    bound = dict(zip(names, args, strict=False)) | {n: given.pop(n) for n in names if n in given}
    signature = inspect.signature(_python(function)).parameters
    for name in names:
        if name not in bound and signature[name].default is not inspect.Parameter.empty:
            bound[name] = signature[name].default
    options = {n: given.pop(n, None) or default for n, default in OPTIONS.items()}
    for name, value in given.items():
        if name not in IGNORED or value != IGNORED[name]:
            raise WorkerFault("unsupported", f"the launch option {name}={value!r} is not supported")
    if missing := [n for n in names if n not in bound]:
        raise WorkerFault("target_inputs", f"a launch gives no value for {', '.join(missing)}")
    constexprs, values = {}, {}
    for name in names:
        if "constexpr" in str(signature[name].annotation):
            constexprs[name] = _plain(name, bound[name], "constexpr ")
        else:
            values[name] = bound[name] if isinstance(bound[name], Tensor) else _plain(name, bound[name], "")
            if type(bound[name]) not in (Tensor, torch.nn.Parameter, int, float, bool):
                raise _strange(name, bound[name], "")
    grid = kwargs["grid"]
    asked = callable(grid)
    grid = grid(bound) if asked else grid
    grid = [int(n) for n in (grid if isinstance(grid, list | tuple) else (grid,))]
    return {"values": values, "constexprs": constexprs, "grid": grid, "callable_grid": asked, "options": options}


def _plain(name: str, value: Any, kind: str) -> Any:
    """Triton's own constants taken off their wrapper."""
    value = value.value if type(value).__name__ == "constexpr" else value
    if type(value) in (int, float, bool, str):
        return value
    raise _strange(name, value, kind)


def _strange(name: str, value: Any, kind: str) -> WorkerFault:
    return WorkerFault("unsupported", f"the {kind}argument {name} is {_article(value)}: tensors and plain numbers are "
                       "supported")


def _article(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__module__.partition('.')[0]}.{type(value).__name__}"


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Launches inside go through `watch` where they are of its kernel."""
    autotuner = importlib.import_module("triton.runtime.autotuner")
    inner = (importlib.import_module("triton.runtime.jit").JITFunction,
             importlib.import_module("triton.runtime.interpreter").InterpretedFunction)
    with contextlib.ExitStack() as patched:
        for kind in (autotuner.Autotuner, autotuner.Heuristics, *inner):
            patched.enter_context(mock.patch.object(kind, "run", _hook(watch, kind.run, kind in inner)))
        yield


def _hook(watch: Watch, run: Callable[..., Any], innermost: bool) -> Callable[..., Any]:
    def reach(function: Any, *args: Any, **kwargs: Any) -> Any:
        if innermost:
            return watch.inside(function, run, args, kwargs)
        if type(function).__name__ == "Autotuner" and interpreting():
            with mock.patch.object(function, "configs", function.configs[:1]):
                return run(function, *args, **kwargs)
        return run(function, *args, **kwargs)

    def hooked(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not watch.mine(function):
            return run(function, *args, **kwargs)
        return reach(function, *args, **kwargs) if watch.depth else watch.outside(function, reach, args, kwargs)

    return hooked


def record_launches(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """Method `record_launches` of docs/architecture.md."""
    context.state.pop("launches", None)
    root, path, kernel = os.path.realpath(params["root"]), str(params["path"]), str(params["kernel"])
    device = torch.device(params["device"])
    if interpreting():
        importlib.import_module("kernelopt_bot.sandbox.worker.shim").install()
    roots = tuple(params.get("roots") or ())
    text = params.get("text")
    module = import_file(root, path, roots) if text is None else _edited(context, root, path, roots, text)
    found = getattr(module, kernel, None)
    if found is None or not hasattr(found, "run") or not inspect.isfunction(_python(found)):
        raise WorkerFault("target_missing", f"{path} has no Triton kernel {kernel} once it is imported")
    watch = Watch(os.path.realpath(_python(found).__code__.co_filename), kernel, context,
                  int(params.get("save_limit_bytes", 64 << 20)))
    seed_everything(int(params.get("seed", 0)))
    with watched(watch), torch.no_grad():
        try:
            if params.get("record"):
                _test(root, str(params["record"]))
            else:
                _function(root, path, module, str(params["inputs"]), roots, device)
        except WorkerFault as e:
            raise watch.fault or e from e
    if watch.fault is not None:
        raise watch.fault
    if not watch.calls:
        what = _named(str(params["record"])) if params.get("record") else params["inputs"]
        empty = f" over any elements ({watch.empty} launches were over none)" if watch.empty else ""
        raise WorkerFault("target_inputs", f"{what} ran and never launched {kernel}{empty}",
                          "What another process launches (pytest-xdist, torch.multiprocessing) is not seen.")
    context.state["launches"] = watch
    return {"calls": [{**call.facts, "count": call.count} for call in watch.calls.values()],
            "empty": watch.empty, "configs": _configs(found)}


def _configs(found: Any) -> list[dict[str, Any]]:
    """Of the kernel's autotuner, as far as they are plain; [] without one."""
    for _ in range(8):
        if type(found).__name__ == "Autotuner":
            return [{"constexprs": {k: _plain(k, v, "constexpr ") for k, v in c.kwargs.items()},
                     "num_warps": int(c.num_warps), "num_stages": int(c.num_stages),
                     "special": bool(c.pre_hook or getattr(c, "maxnreg", None) or (c.num_ctas or 1) != 1)}
                    for c in found.configs]
        found = getattr(found, "fn", None)
    return []


def _edited(context: Context, root: str, path: str, roots: tuple[str, ...], text: str) -> Any:
    """The user's file with another text, from scratch, under the name that it has in the repository."""
    original = import_file(root, path, roots)
    place = context.path(os.path.join("edited", os.path.basename(path)))
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    importlib.import_module("linecache").checkcache(place)
    spec = importlib.util.spec_from_file_location(original.__name__, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Also for what imports it from now on. What did so before keeps the old one: such a question needs a new process.
    sys.modules[original.__name__] = module
    parent, _, last = original.__name__.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)
    with user_code(root, "target_import", f"importing the edited {path} failed"):
        spec.loader.exec_module(module)
    return module


def _function(root: str, path: str, main: Any, spec: str, roots: tuple[str, ...], device: torch.device) -> None:
    """Call `name` of the kernel's file, or `other/file.py:name`; functions that it returns are called too."""
    file, _, name = spec.rpartition(":")
    module = main if not file or file == path else import_file(root, file, roots)
    function = getattr(module, name, None)
    if not callable(function):
        raise WorkerFault("target_missing", f"no function {name!r} in {file or path}")
    with user_code(root, "target_inputs", f"{name} failed"):
        wants = "device" in inspect.signature(function).parameters
        made = function(device=device) if wants else function()
        for call in made if isinstance(made, list | tuple) else (made,):
            if callable(call):
                call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def _test(root: str, node: str) -> None:
    """Run one test by pytest in this process."""
    try:
        pytest = importlib.import_module("pytest")
    except ModuleNotFoundError as e:
        raise WorkerFault("target_inputs", f"pytest is not installed in {sys.executable}, and "
                          f"{_named(node)} is a test") from e
    os.chdir(root)
    seen = _Reports()
    with user_code(root, "target_inputs", f"{_named(node)} failed"):
        code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--rootdir", root, "--", node], plugins=[seen]))
    if code or not seen.passed:
        why = {1: "it fails", 2: "it cannot be collected", 4: "pytest does not find it",
               5: "no test of that name was collected"}.get(code, f"pytest ended with code {code}")
        raise WorkerFault("target_inputs", f"{_named(node)} cannot be used: {why if code else 'it was skipped'}",
                          seen.words[-DETAIL:])


def _named(node: str) -> str:
    """A test in words: `::` begins a workflow's command, so the host would show it with a mark in between."""
    file, _, test = node.partition("::")
    return f"{file}: {test.replace('::', '.')}"


class _Reports:
    """A plugin of pytest that keeps what it says of failures, which it prints where nobody reads it."""

    def __init__(self) -> None:
        self.words, self.passed = "", False

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.words = str(report.longreprtext)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed = self.passed or (report.when == "call" and report.passed)
        if not report.passed:
            self.words = str(report.longreprtext)


def launch_grids(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """Method `launch_grids` of docs/architecture.md: nothing is launched."""
    watch: Watch | None = context.state.get("launches")
    if watch is None:
        raise WorkerFault("bad_request", "no launches were recorded")
    watch.dry = True
    try:
        with watched(watch):
            return {"grids": [[_grid(watch, call, one) for one in params["configs"]] for call in watch.calls.values()]}
    finally:
        watch.dry = False


def _grid(watch: Watch, call: Call, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """{grid, constexprs} of a call under a configuration; None where the host's own code refuses it."""
    args, kwargs = call.given
    given = {**config["constexprs"], "num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    outer, tuner = call.outer, call.outer
    while tuner is not None and type(tuner).__name__ != "Autotuner":
        tuner = getattr(tuner, "fn", None)
    watch.last = None
    try:
        if tuner is None:
            outer.run(*args, **{**kwargs, **given})
        else:
            forced = importlib.import_module("triton").Config(
                dict(config["constexprs"]), num_warps=config["num_warps"], num_stages=config["num_stages"])
            with mock.patch.object(tuner, "configs", [forced]):
                outer.run(*args, **kwargs)
    except Exception:
        return None
    last: dict[str, Any] | None = watch.last
    return None if last is None else {"grid": last["grid"], "constexprs": last["constexprs"]}
