"""Loading a target into a model worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.session import Session
from kernelopt_bot.targets.target import Target

TIMEOUT_S = 600.0
SEED = 20_250_101
"""Of the example inputs and the initialisation that are captured; gates draw others from the secret."""


def load(session: Session, worker: Worker, target: Target) -> dict[str, Any]:
    """The worker's description of the model. Raises WorkerError."""
    return worker.call("load", {
        "root": str(session.root), "path": target.path, "entry": target.entry, "inputs": target.inputs,
        "init": target.init,
        "roots": list(target.roots), "mode": target.mode,
        "device": session.inside, "seed": SEED}, timeout=TIMEOUT_S)


def covered(loaded: dict[str, Any]) -> tuple[str, ...]:
    """Input shapes and dtypes as a report shows them: `x: (8, 128, 256) float32`."""
    shown = []
    for given in loaded["inputs"]:
        meta = given.get("meta")
        if meta:
            shown.append(f"{given['name']}: {shape_words(meta)}")
        else:
            shown.append(f"{given['name']}: {given.get('value')}")
    return tuple(shown)


def shape_words(meta: Mapping[str, Any]) -> str:
    """`(8, 128, 256) float32`."""
    shape = ", ".join(str(n) for n in meta["shape"]) + ("," if len(meta["shape"]) == 1 else "")
    return f"({shape}) {meta['dtype']}"
