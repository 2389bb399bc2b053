"""Files with Triton kernels, and results whose edits of them are what the search on a GPU writes."""

from __future__ import annotations

from kernelopt_bot.search.result import RunResult, TargetResult
from kernelopt_bot.targets.triton_edit import Settings, edited
from kernelopt_bot.targets.triton_edit_check import reason_of
from tests.report import results

OPS = """\
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.jit
def norm(x_ptr, BLOCK: tl.constexpr):
    pass


@triton.jit
def scale(x_ptr, BLOCK: tl.constexpr):
    pass


def launch(x):
    norm[lambda meta: (1,)](x, BLOCK=1024)
    scale[(4,)](x, BLOCK=64, num_warps=4)


# kernelopt: inputs=make_inputs

def make_inputs(device="cpu"):
    return [lambda: launch(None)]
"""
PATH = "kernels/ops.py"


def edit(entry: str = "norm", text: str = OPS, block: int = 512) -> bytes:
    return edited(text.encode(), entry, [Settings({"BLOCK": block}, 8, 3)],
                  reason_of(1.2, 1.18, 1.23, "NVIDIA H200", 2))


def result(entry: str = "norm", new: bytes | None = None, speedup: float = 1.2) -> TargetResult:
    return results.triton_result(PATH, entry, edit(entry) if new is None else new, speedup)


def run_of(*found: TargetResult, head: str = "", number: int | None = None) -> RunResult:
    return RunResult(found, "kernelopt optimize", base_sha=head, head_sha=head, repository="acme/kernels",
                     pull_request=number)
