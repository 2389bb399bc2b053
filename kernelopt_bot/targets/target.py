"""A target: a model or a kernel that can be optimised, found in source text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Target:
    """A class deriving from `nn.Module` with a way to build it and its example inputs."""

    name: str
    """Unique, file-system safe: `transformer_block` or `models_net_Encoder`."""
    path: str
    """Relative to `root`, POSIX."""
    entry: str
    """Class name in that file."""
    inputs: str
    """Function in the file (or `other/file.py:function`) returning the list of forward arguments."""
    init: str = ""
    """Function returning the constructor's arguments: a list, or a dict of keywords; '' for none."""
    mode: Literal["inference"] = "inference"
    origin: Literal["convention", "config", "command"] = "convention"
    closure: tuple[str, ...] = ()
    """Files inside the repository that `path` imports, transitively, itself included; POSIX, sorted."""
    roots: tuple[str, ...] = ()
    """Folders below `root` that its absolute imports start from, beside `root` itself: `src`; for `sys.path`."""
    wire: str = ""
    """Where it is built, `path/to/file.py:function`: there the publication changes the call site."""
    line: int = 1
    """Of the class statement in `path`, from 1; 1 where the class is not written there."""

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Files beside `path` that it takes to run it, whether they are there or not; POSIX."""
        return tuple(f.rpartition(":")[0] for f in (self.inputs, self.init) if ":" in f)


@dataclass(frozen=True)
class Affected:
    """Targets of a diff, and what was passed over with the reason."""

    base: str
    """Commit of the base. The diff starts from its merge base with `head`, where that is at hand."""
    head: str
    changed: tuple[str, ...]
    """POSIX paths, sorted."""
    targets: tuple[Target, ...]
    skipped: tuple[tuple[str, str], ...] = field(default=())
    """(path or class, reason)."""
