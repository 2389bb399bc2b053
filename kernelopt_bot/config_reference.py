"""The reference of `.kernelopt.yml`, written from the model, so that it cannot drift from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kernelopt_bot.config import FILES, Config

_HEAD = f"""# Configuration

`{FILES[0]}` in the repository's root, or `{FILES[1]}`. All keys are optional but a target's `path`, and a
kernel's `path` and `kernel`. An unknown key is an error that names its line and the nearest valid key.
`kernelopt config` prints the effective configuration and where each value comes from; the JSON Schema is
[config.schema.json](config.schema.json).

```yaml
# yaml-language-server: $schema=docs/config.schema.json
version: 1
targets:
  - path: models/net.py
    entry: Encoder
    inputs: example_inputs
gates:
  min_gain: 1.05
```

Everything but `targets` and `kernels` is policy. On a runner it is read from the default branch only: what a pull
request changes in it holds once it is merged, and a fork's changes nothing. `targets` and `kernels`
([inputs.md](inputs.md)) are read from the pull request's head, as data that nobody vouches for. In a repository with
several projects, `roots` names their folders; a `{FILES[0]}` in such a folder lists that project's `targets` and
`kernels` and nothing else.
"""


def markdown() -> str:
    """The text of docs/configuration.md."""
    return "\n".join([_HEAD, "## Top level\n", _table(Config, ""), *_sections(Config, "", set())])


def _sections(model: type[BaseModel], before: str, seen: set[type[BaseModel]]) -> Iterator[str]:
    """Every section below `model`, the first time that it is named."""
    for name, info in model.model_fields.items():
        inner = _inner(info)
        if inner is None or inner in seen:
            continue
        seen.add(inner)
        path = f"{before}{name}"
        yield from (f"## `{path}`\n", f"{(inner.__doc__ or '').strip()}\n", _table(inner, f"{path}."))
        yield from _sections(inner, f"{path}.", seen)


def _table(model: type[BaseModel], before: str) -> str:
    rows = ["| key | values | default | meaning |", "|---|---|---|---|"]
    first: dict[type[BaseModel], str] = {}
    for name, info in model.model_fields.items():
        inner = _inner(info)
        if inner is not None:
            path = first.setdefault(inner, f"{before}{name}")
            values, default = f"see [{path}](#{path.replace('.', '')})", ""
        else:
            values = ", ".join(_values(info.annotation, info.metadata))
            default = "required" if info.is_required() else f"`{_spelled(info.default)}`"
        rows.append(f"| `{name}` | {values} | {default} | {(info.description or '').replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def _inner(info: FieldInfo) -> type[BaseModel] | None:
    kinds = (info.annotation, *get_args(info.annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _values(annotation: Any, metadata: list[Any]) -> Iterator[str]:
    if get_origin(annotation) is tuple:
        options = get_args(get_args(annotation)[0])
        literal = [o for o in options if isinstance(o, str)]
        yield "list of " + (" ".join(f"`{o}`" for o in literal) if literal else "text")
    elif type(None) in get_args(annotation):
        inner, = (a for a in get_args(annotation) if a is not type(None))
        # pydantic leaves the bounds of a union in the field's own metadata.
        yield from (*_values(inner, []), "`null`")
    elif get_args(annotation):
        yield " ".join(f"`{o}`" if o != "" else '`""`' for o in get_args(annotation))
    else:
        yield {str: "text", int: "whole number", float: "number", bool: "`true` `false`"}[annotation]
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    for limit in metadata:
        yield from (f"{word} {getattr(limit, key):.15g}" for key, word in words.items() if hasattr(limit, key))


def _spelled(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
