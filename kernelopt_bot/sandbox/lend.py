"""Tensors that one worker saved, handed to another by copying: no two workers share a writable file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelopt_bot.errors import Unavailable


def lend(value: Any, source: Path, destination: Path) -> Any:
    """`value` with every `TensorRef` in it copied from one scratch folder to another, under the same name.

    What a worker says about its files is not trusted: a name that leaves its folder, or a link, raises ValueError.
    Raises Unavailable if the copy cannot be written.
    """
    if isinstance(value, Mapping):
        if "file" in value and "storage_bytes" in value:
            _copy(str(value["file"]), int(value["storage_bytes"]), source, destination)
        return {k: lend(v, source, destination) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [lend(v, source, destination) for v in value]
    return value


def _copy(name: str, size: int, source: Path, destination: Path) -> None:
    old, new = source / name, destination / name
    root = source.resolve()
    if not old.resolve().is_relative_to(root) or old.is_symlink() or not new.parent.resolve().is_relative_to(
            destination.resolve()):
        raise ValueError(f"the worker names a file outside its folder: {name!r}")
    if not old.is_file() or old.stat().st_size != size:
        raise ValueError(f"the worker's file {name!r} does not have the {size} bytes that it says")
    if new.exists() and new.stat().st_size == size and new.stat().st_mtime_ns >= old.stat().st_mtime_ns:
        return
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old, new)
    except OSError as e:
        raise Unavailable(f"recorded tensors could not be copied: {e.strerror}", where=str(destination),
                          fix="free disk space; nothing verified was lost", kind="disk_full") from e
