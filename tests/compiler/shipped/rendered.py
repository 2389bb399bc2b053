"""Run by `test_rendering.py` in a process of its own: executes rendered launches.

`interpret`: under Triton's interpreter, against torch. `cubin`: through Inductor's own autotuner object and compile
path, for a pretended sm_90. Prints a JSON line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from kernelopt_bot.compiler._runtime import RenderedLaunch, read_wrapper, render, render_scratch
from tests.compiler import candidates

WRAPPERS = Path(__file__).parents[2] / "data" / "wrappers"


def launches() -> tuple[tuple[RenderedLaunch, ...], tuple[RenderedLaunch, ...], int]:
    norm = read_wrapper((WRAPPERS / "h200_torch2.11_inference.py").read_text())
    sums = read_wrapper((WRAPPERS / "h200_torch2.11_backward.py").read_text())
    one = render(candidates.LAYER_NORM, candidates.layer_norm_plan(), norm.kernels[norm.calls[0].kernel],
                 norm.calls[0].integers)
    integers = {"xnumel_1": 256}
    plan = candidates.column_sum_plan()
    two = render(candidates.COLUMN_SUM, plan, sums.kernels[sums.calls[0].kernel], integers)
    return one, two, render_scratch(plan, integers)[0].elements


def execute(launch: RenderedLaunch, folder: str) -> dict[str, Any]:
    """The rendered module's globals; from a real file, which the interpreter and `triton.jit` read again."""
    path = Path(folder) / f"{launch.function}.py"
    path.write_text(launch.source)
    space: dict[str, Any] = {"__name__": launch.function, "__file__": str(path)}
    exec(compile(launch.source, str(path), "exec"), space)
    return space


def interpret(folder: str) -> dict[str, float]:
    from torch._inductor.runtime import triton_helpers, triton_heuristics

    from kernelopt_bot.sandbox.worker.shim import install

    install()
    seen: dict[str, Any] = {}

    def fixed_config(config: dict[str, Any], filename: str, triton_meta: Any, inductor_meta: Any) -> Any:
        def keep(function: Any) -> Any:
            grid = triton_heuristics.GridExpr.from_meta(inductor_meta, config).eval_slow({})
            constants = {k: v for k, v in config.items() if k not in ("num_warps", "num_stages")}
            seen["run"] = lambda *args: function[grid](*args, **constants)
            return function
        return keep

    def run(launch: RenderedLaunch, values: dict[str, torch.Tensor]) -> None:
        with mock.patch.object(triton_heuristics, "fixed_config", fixed_config), \
             mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None):
            execute(launch, folder)
        seen["run"](*(values[a] if isinstance(a, str) else a for a in launch.arguments))

    one, two, elements = launches()
    generator = torch.Generator().manual_seed(1)
    x, weight, bias = (torch.randn(s, generator=generator) for s in ((1024, 256), (256,), (256,)))
    y, total, scratch = torch.empty_like(x), torch.empty(256), torch.empty(elements)
    run(one[0], {"in_ptr0": x, "in_ptr1": weight, "in_ptr2": bias, "out_ptr2": y})
    for launch in two:
        run(launch, {"p0": x, "p1": total, "partial": scratch})
    return {"layer_norm": float((y - torch.layer_norm(x, (256,), weight, bias)).abs().max()),
            "column_sum": float((total - x.double().sum(0).float()).abs().max())}


def cubin(folder: str) -> dict[str, int]:
    import torch._inductor.config
    from torch._inductor.runtime import triton_helpers

    from kernelopt_bot.sandbox.worker.kernels import pretended_driver

    sizes = {}
    with pretended_driver(90), mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None), \
         torch._inductor.config.patch(use_static_triton_launcher=False):
        one, two, _ = launches()
        for launch in (*one, *two):
            autotuner = execute(launch, folder)[launch.function]
            (config,) = autotuner.configs
            sizes[launch.function] = len(autotuner._precompile_config(config).kernel.asm["cubin"])
    return sizes


if __name__ == "__main__":
    print(json.dumps({"interpret": interpret, "cubin": cubin}[sys.argv[1]](sys.argv[2])))
