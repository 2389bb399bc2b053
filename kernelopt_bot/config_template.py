"""The commented `.kernelopt.yml` that `kernelopt init` writes: defaults and meanings from the model itself."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from kernelopt_bot.config import Config

SHOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("environment", ("python",)), ("artifact", ("root",)), ("levers", ()), ("device", ()), ("sandbox", ()),
    ("gates", ("min_gain", "metric", "cache")), ("budget", ("wall_s", "gpu_minutes")),
    ("events", ("automatic", "paths", "ignore_paths", "quiet_s", "runs_a_day")), ("commands", ("permission",)),
    ("sweep", ("gpu_minutes", "open_pull_requests", "dashboard")), ("runner", ("ephemeral",)),
    ("publish", ("labels", "reviewers", "draft")))
"""Sections and keys that are worth a look at the beginning; docs/configuration.md has all of them."""
WIDTH = 110


@dataclass(frozen=True)
class Listed:
    """A target as it is written into the file. `active`: not commented out."""

    path: str
    entry: str
    inputs: str = ""
    """'' where the file follows the convention itself."""
    init: str = ""
    active: bool = False


def text(targets: Sequence[Listed]) -> str:
    """A valid configuration: uncommented it says what holds anyway, but for the targets."""
    return "\n".join(_lines(targets)) + "\n"


def _lines(targets: Sequence[Listed]) -> Iterator[str]:
    yield "# KernelOPT bot. Every key: docs/configuration.md, or `kernelopt config --reference`."
    yield "# `kernelopt config` prints what holds, `kernelopt check` tries the targets."
    yield "version: 1"
    yield ""
    yield "# Models beside those found by convention (class Model with get_inputs in its file)."
    active = any(t.active for t in targets)
    if targets:
        yield "targets:" if active else "# targets:"
    for target in sorted(targets, key=lambda t: (not t.active, t.path, t.entry)):
        yield from (line if target.active else f"# {line}" for line in entry(target))
    yield ""
    yield "# Policy, with its defaults. On a runner it is read from the default branch only."
    for name, keys in SHOWN:
        yield from _section(name, keys)


def entry(target: Listed) -> Iterator[str]:
    """Its lines below `targets:`."""
    yield f"  - path: {json.dumps(target.path)}"
    yield f"    entry: {target.entry}"
    for key in ("inputs", "init"):
        if value := getattr(target, key):
            yield f"    {key}: {json.dumps(value)}"


def _section(name: str, keys: tuple[str, ...]) -> Iterator[str]:
    info = Config.model_fields[name]
    value = info.default
    if not isinstance(value, BaseModel):
        yield from _comment(info.description or "", "")
        yield f"# {name}: {_spelled(value)}"
        return
    yield f"# {name}:"
    for key in keys:
        yield from _comment(type(value).model_fields[key].description or "", "  ")
        yield f"#   {key}: {_spelled(getattr(value, key))}"


def _comment(words: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(words, WIDTH - len(indent)):
        yield f"# {indent}# {line}"


def _spelled(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
