"""Makes the kernel sources that the tests of the playbook use: small models of ours, Inductor for a pretended sm_90.

    python -m tests.playbook.make_sources [case ...]

Writes `data/torch<version>/<case>.json`: `{"torch", "calls": [{name, source, arguments}]}`. Run it in an environment
with the wanted torch; no GPU is needed. Sizes are small for the interpreter, and no multiples of the blocks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as functorch
import torch._inductor.config as inductor
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.compile_fx import compile_fx

from kernelopt_bot.sandbox.worker import pretend
from tests.playbook.wrapper_steps import kernel_calls

E = torch.empty
Case = tuple[Callable[..., Tensor], tuple[Tensor, ...]]
CASES: dict[str, Case] = {
    "softmax_3x2051": (lambda x: torch.softmax(x, 1), (E(3, 2051),)),
    "softmax_half_3x1500": (lambda x: torch.softmax(x, 1), (E(3, 1500, dtype=torch.float16),)),
    "softmax_9x100": (lambda x: torch.softmax(x * 2, 1), (E(9, 100),)),
    "l2norm_3x2047": (lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True), (E(3, 2047),)),
    "layernorm_3x2050": (lambda x, w, b: F.layer_norm(x, (2050,), w, b), (E(3, 2050), E(2050), E(2050))),
    "layernorm_9x200": (lambda x, w, b: F.layer_norm(x, (200,), w, b), (E(9, 200), E(200), E(200))),
    "rmsnorm_2x4096": (lambda x, w: F.rms_norm(x, (4096,), w), (E(2, 4096), E(4096))),
    "layernorm_2x9001": (lambda x: F.layer_norm(x, (9001,)), (E(2, 9001),)),
    "l1norm_2x12288": (lambda x: x / x.abs().mean(1, keepdim=True), (E(2, 12288),)),
    "logsumexp_3x4100": (lambda x: torch.logsumexp(x, 1), (E(3, 4100),)),
    "argmax_3x5001": (lambda x: x.argmax(1), (E(3, 5001),)),
    "any_3x5001": (lambda x: (x > 4).any(1), (E(3, 5001),)),
    "sum_7001": (lambda x, y: ((x - y) ** 2).mean(), (E(7001), E(7001))),
    "softmax_outer_2x300x33": (lambda x: torch.softmax(x, 1), (E(2, 300, 33),)),
    "groupnorm_2x4x7x30": (lambda x, w, b: F.relu(F.group_norm(x, 2, w, b)), (E(2, 4, 7, 30), E(4), E(4))),
    "bias_gelu_2x3x7x30": (lambda x, b: F.gelu(x + b[None, :, None, None]) * 2, (E(2, 3, 7, 30), E(3))),
    "batchnorm_2x3x128": (lambda x, m, v, w, b: F.relu(F.batch_norm(x, m, v, w, b)),
                          (E(2, 3, 128), E(3), E(3), E(3), E(3))),
    "maxpool3d_5": (lambda x: F.max_pool3d(x, 3, 2, 1), (E(1, 2, 5, 5, 5),)),
    "maxpool2d_15": (lambda x: F.max_pool2d(x, 2), (E(2, 3, 15, 15),)),
    "avgpool2d_22": (lambda x: F.avg_pool2d(x, 5, 3), (E(2, 2, 23, 17),)),
    "rowsum_2x90x33": (lambda x: x.sum(1), (E(2, 90, 33),)),
    "argmax_2x40x33": (lambda x: x.argmax(1), (E(2, 40, 33),)),
    "transpose_2x33x17": (lambda x: x.transpose(1, 2).contiguous() + 1, (E(2, 33, 17),)),
    "cumsum_3x300": (lambda x: torch.cumsum(x, 1), (E(3, 300),)),
    "cumsum_3x2100": (lambda x: torch.cumsum(x, 1), (E(3, 2100),)),
    "cumprod_2x3072": (lambda x: torch.cumprod(x, 1), (E(2, 3072),)),
    "reverse_cumsum_2x1500": (lambda x: x.flip(1).cumsum(1).flip(1), (E(2, 1500),)),
    "masked_cumsum_2x1537": (lambda x, m: torch.cumsum(x * m, 1), (E(2, 1537), torch.zeros(2, 1537, dtype=torch.bool))),
    "maxpool3d_dilated_7x7x24": (lambda x: F.max_pool3d(x, 3, 2, 1, 3), (E(1, 1, 7, 7, 24),)),
    "maxpool2d_relu_9x30": (lambda x: F.max_pool2d(torch.relu(x) * 2 - 1, (7, 6), (2, 4), 2) + 1, (E(1, 1, 9, 30),)),
    "avgpool2d_11_23x300": (lambda x: F.avg_pool2d(x, 11), (E(1, 1, 23, 300),)),
    "maxpool1d_2x1100": (lambda x: F.max_pool1d(x, 8, 1, 4, 3), (E(1, 2, 1100),)),
    "avgpool2d_3_13x17": (lambda x: F.avg_pool2d(x, 3, 2, 1), (E(2, 2, 13, 17),)),
    "cat_2x5x23x23": (lambda a, b: torch.cat([F.relu(a), b * 2], 1), (E(2, 3, 23, 23), E(2, 2, 23, 23))),
    "cat_3x1400": (lambda a, b: torch.cat([F.relu(a), b], -1), (E(3, 600), E(3, 800))),
    "pad_2x3x9x70": (lambda x: F.pad(x, (1, 2, 1, 1)), (E(2, 3, 9, 70),)),
    "upsample_2x7x9": (lambda x: F.interpolate(x, scale_factor=2), (E(1, 2, 7, 9),)),
    "channels_last_2x5x6x7": (lambda x: x.to(memory_format=torch.channels_last) * 2, (E(2, 5, 6, 7),)),
    "channels_first_2x70x9x8": (lambda x, b: (x.permute(0, 3, 1, 2) + b[None, :, None, None]).contiguous(),
                                (E(2, 9, 8, 70), E(70))),
    "relu_1000": (lambda x: torch.relu(x) + 1, (E(1000),)),
    "multiply_in_place_7x50": (lambda x, y: x.mul_(y), (E(7, 50), E(7, 50))),
}


def wrapper(function: Callable[..., Tensor], arguments: Sequence[Tensor]) -> str:
    texts: list[str] = []

    def inner(gm: Any, examples: Any, **settings: Any) -> Any:
        texts.append(pretend.generate(gm, examples, "sm_90", **settings))
        result = pretend.interpreter(gm)
        result._boxed_call = True  # type: ignore[attr-defined]
        return result

    def backend(gm: Any, examples: Any) -> Any:
        return compile_fx(gm, examples, inner_compile=inner)

    off = {"fx_graph_cache": False, **pretend.CONFIG}
    with inductor.patch(off), functorch.patch(enable_autograd_cache=False), torch.no_grad():
        torch._dynamo.reset()
        torch.compile(function, backend=backend, dynamic=False, fullgraph=True)(*arguments)
    return texts[0]


def main(wanted: Sequence[str]) -> None:
    version = torch.__version__.split("+")[0]
    folder = Path(__file__).parent / "data" / f"torch{version.rpartition('.')[0]}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in wanted or CASES:
        calls = kernel_calls(wrapper(*CASES[name]))
        (folder / f"{name}.json").write_text(json.dumps({"torch": version, "calls": calls}, indent=1) + "\n")
        print(name, [c["name"] for c in calls])


if __name__ == "__main__":
    main(sys.argv[1:])
