"""A model worker without its process."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

from kernelopt_bot.sandbox.worker.load import load
from kernelopt_bot.sandbox.worker.main import Context

with warnings.catch_warnings():
    # Inductor's first import declares TorchScript methods, which warn of their own deprecation
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch._inductor.compile_fx  # noqa: F401

COMPILES_IN_PLACE = """
class ArtifactError(Exception):
    pass


def optimize(model, on_miss="compile"):
    model.compile(backend="eager")
    return model


"""
"""An artifact but for its `status`."""
MODELS = Path(__file__).parent / "models"


def parameters(entry: str, inputs: str = "narrow", init: str = "", path: str = "blocks.py") -> dict[str, Any]:
    """Parameters of `load`."""
    return {"root": str(MODELS), "path": path, "entry": entry, "inputs": inputs, "init": init, "mode": "inference",
            "device": "cpu", "seed": 7}


class Session(Context):
    """A context that keeps what would go to the host."""

    def __init__(self, scratch: Path) -> None:
        self.sent = io.BytesIO()
        super().__init__(str(scratch), self.sent)

    @classmethod
    def loaded(cls, scratch: Path, entry: str, inputs: str = "narrow", init: str = "") -> Session:
        session = cls(scratch)
        load(session, parameters(entry, inputs, init))
        return session
