"""Run by `test_artifact.py` with TRITON_INTERPRET=1: a whole wrapper with and without an artifact."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import torch

from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, write_artifact
from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.interpret_graph import interpret_graph
from tests.compiler import candidates, programs
from tests.compiler.conftest import wrapper

SHAPES = [(4, 8, 32), (8,), (8,), (8,), (8,), (32,), (32,), (64, 32), (64,), (32, 64), (32,)]


class Scratch:
    def __init__(self, folder: Path) -> None:
        self.scratch = str(folder)

    def path(self, name: str) -> str:
        return str(Path(self.scratch) / name)


def main(folder: Path) -> None:
    source, scratch = wrapper("pretended_torch2.13_partition"), Scratch(folder)
    kernel = dataclasses.replace(programs.layer_norm(source), plan=Plan.from_json(candidates.layer_norm_plan(32)))
    artifact = write_artifact(folder / "package" / "block", class_name="Block", program=programs.program(source),
                              kernels=[AdoptedKernel(kernel)], recipe=Recipe(), environment={"capability": [9, 0]})
    torch.manual_seed(0)
    inputs = [torch.rand(s) for s in SHAPES]
    found = []
    for place in (None, str(artifact)):
        saved = [tensors.save(scratch, t) for t in inputs]
        found.append(interpret_graph({"source": source, "inputs": saved, "artifact": place}, scratch,
                                     str(folder / "kernels")))
    plain, mine = ([tensors.load(scratch, o) for o in f["outputs"]] for f in found)
    print(json.dumps({"replaced": sum(found[1]["replaced"].values()),
                      "callees": [c["callee"] for c in found[1]["calls"]],
                      "error": max(float((a - b).abs().max()) for a, b in zip(plain, mine, strict=True))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
