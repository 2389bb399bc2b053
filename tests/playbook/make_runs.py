"""Makes the wrappers that the tests of fusion and of regions use: small models of ours, Inductor for a pretended sm_90.

    python -m tests.playbook.make_runs [case ...]

Writes `data/runs/torch<version>/<case>.py.txt`, and `data/regions` likewise. Run it in an environment with the
wanted torch; no GPU is needed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.playbook.make_sources import Case, wrapper

E = torch.empty
RUNS: dict[str, Case] = {
    "convolution_group_norm": (
        lambda x, w, b, g, h: F.hardtanh(F.group_norm(F.conv2d(x, w, b), 2, g, h) * 2),
        (E(1, 2, 66, 66), E(4, 2, 3, 3), E(4), E(4), E(4))),
    "group_norm_63x65": (lambda x, g, h: F.relu(F.group_norm(x, 1, g, h)), (E(2, 2, 63, 65), E(2), E(2))),
    "group_norm_8x64x5x5": (lambda x, g, h: F.relu(F.group_norm(x, 8, g, h)), (E(8, 64, 5, 5), E(64), E(64))),
    "group_norm_8x64x12x12": (lambda x, g, h: F.relu(F.group_norm(x, 8, g, h)), (E(8, 64, 12, 12), E(64), E(64))),
    "batch_norm_training": (lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)),
                            (E(6, 2, 64, 64), E(2), E(2))),
    "softmax_2x9000": (lambda x: torch.softmax(x, 1), (E(2, 9000),)),
    "frobenius": (lambda x: x / torch.norm(x), (E(6, 50, 61),)),
    "two_windows": (lambda x, w: F.avg_pool2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), 2),
                    (E(1, 2, 20, 22), E(3, 2, 3, 3))),
    "bias_window_softmax": (
        lambda x, w, b: torch.softmax(F.max_pool2d(F.conv2d(x, w, b), 2), 1).mean((2, 3)),
        (E(1, 2, 14, 16), E(5, 2, 3, 3), E(5))),
    "instance_norm_half": (lambda x: F.instance_norm(x) * 0.5, (E(1, 2, 96, 96, dtype=torch.float16),)),
    "two_step_loss": (lambda a, b: F.mse_loss(a, b), (E(90, 97), E(90, 97))),
}
REGIONS: dict[str, Case] = {
    "product_relu": (lambda x, w, b: F.relu(F.linear(x, w, b)) * 2, (E(48, 40), E(72, 40), E(72))),
    "product_half": (lambda x, w, b: F.gelu(F.linear(x, w, b)),
                     (E(40, 64, dtype=torch.float16), E(48, 64, dtype=torch.float16), E(48, dtype=torch.float16))),
    "product_bfloat16": (lambda x, w, b: F.relu(F.linear(x, w, b)),
                         (E(33, 64, dtype=torch.bfloat16), E(48, 64, dtype=torch.bfloat16),
                          E(48, dtype=torch.bfloat16))),
    "product_tril": (lambda a, b: torch.tril(a @ b), (E(50, 50), E(50, 50))),
    "product_softmax": (lambda q, k: torch.softmax(q @ k.transpose(1, 2) * 0.3, -1), (E(3, 40, 24), E(3, 36, 24))),
    "product_twice": (lambda x, y: ((z := x @ y), z.sum(1)), (E(34, 20), E(20, 31))),
    "depthwise_relu": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1, stride=2, groups=6)),
                       (E(2, 6, 14, 13), E(6, 1, 3, 3), E(6))),
    "depthwise_dilated": (lambda x, w, b: F.conv2d(x, w, b, padding=(0, 2), dilation=(1, 2), groups=3) * 2,
                          (E(2, 3, 9, 11), E(6, 1, 2, 3), E(6))),
    "depthwise_alone": (lambda x, w: F.conv2d(x, w, padding=1, groups=6), (E(2, 6, 14, 13), E(6, 1, 3, 3))),
    "product_alone": (lambda a, b: a @ b.t(), (E(34, 20), E(31, 20))),
    "pointwise_hardswish": (lambda x, w, b: F.hardswish(F.conv2d(x, w, b)), (E(2, 24, 9, 11), E(20, 24, 1, 1), E(20))),
}
"""A vendor call and the kernel after it."""


def main(wanted: Sequence[str]) -> None:
    version = torch.__version__.split("+")[0]
    for name in wanted or (*RUNS, *REGIONS):
        kind, case = ("runs", RUNS[name]) if name in RUNS else ("regions", REGIONS[name])
        folder = Path(__file__).parent / "data" / kind / f"torch{version.rpartition('.')[0]}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = wrapper(*case).splitlines()
        text = "\n".join(line.rstrip() for line in lines if not line.lstrip().startswith("#")) + "\n"
        (folder / f"{name}.py.txt").write_text(re.sub(r"\n{3,}", "\n\n", text))
        print(name, text.count(".run("))


if __name__ == "__main__":
    main(sys.argv[1:])
