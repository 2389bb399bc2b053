"""What was adopted so far. Each lever builds on the ones before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, write_artifact
from kernelopt_bot.compiler.example import Example
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import Lever, OptionsCandidate, Scalar

DEFAULT: Mapping[str, Any] = {"name": "default", "kind": "compile", "mode": None, "options": {}, "artifact": None}
"""The arm of default torch.compile, as `time_model` takes it."""


@dataclass(frozen=True)
class Stack:
    """Options by lever and kernels. Empty: the compiler's own code."""

    options: Mapping[str, Scalar] = field(default_factory=dict)
    kernels: tuple[AdoptedKernel, ...] = ()
    folder: Path | None = None
    """Where it is written as an artifact; None while it is empty."""

    @property
    def empty(self) -> bool:
        return not self.options and not self.kernels

    def with_options(self, candidate: OptionsCandidate) -> Stack:
        return replace(self, options={**self.options, **candidate.options}, folder=None)

    def with_kernels(self, kernels: tuple[AdoptedKernel, ...]) -> Stack:
        return replace(self, kernels=kernels, folder=None)

    def written(self, folder: Path, program: Program, class_name: str, environment: Mapping[str, Any],
                evidence: Mapping[str, Any] | None = None, example: Example | None = None) -> Stack:
        """The stack as an artifact in `folder`: what is verified is what would ship.

        Raises InputError, Unavailable (disk full).
        """
        write_artifact(folder, class_name=class_name, program=program, kernels=self.kernels,
                       recipe=Recipe.of(self.options), environment=environment, evidence=evidence,
                       example=example)
        return replace(self, folder=folder)

    def arm(self, name: str) -> dict[str, Any]:
        """The stack as an arm of `time_model`; default torch.compile while it is empty."""
        if self.empty:
            return {**DEFAULT, "name": name}
        if self.folder is None:
            raise ValueError("the stack was not written")
        return {"name": name, "kind": "artifact", "mode": None, "options": {}, "artifact": str(self.folder)}


@dataclass(frozen=True)
class Stage:
    """The stack after a lever, with how many pieces it adopted."""

    lever: Lever
    stack: Stack
    adopted: int
    reason: str
