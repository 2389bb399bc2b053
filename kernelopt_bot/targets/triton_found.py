"""The Triton kernels of a commit or a folder that may be optimised: those listed, and those with a marker."""

from __future__ import annotations

from collections.abc import Iterable

from kernelopt_bot.config import KernelConfig, Traced
from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.discover import Broken, Finder
from kernelopt_bot.targets.triton_kernels import HOW_TO_RUN, TritonTarget, kernels, marked, named_by

_WORD = b"kernelopt:"


def triton_targets(finder: Finder, paths: Iterable[str], traced: Traced, skipped: dict[str, str]
                   ) -> list[tuple[TritonTarget, KernelConfig | None]]:
    """Each with the entry of the configuration that it comes from. `paths`: the Python files that are looked at for
    markers.

    Raises InputError for a listed kernel that is not there, or is listed twice. What does not parse, and a marker that
    names nothing, is passed over: `skipped` gets (file or kernel) -> reason.
    """
    found: dict[tuple[str, str], tuple[TritonTarget, KernelConfig | None]] = {}
    for index, wanted in enumerate(traced.config.kernels):
        where = traced.origin(("kernels", index))
        if (wanted.path, wanted.kernel) in found:
            raise InputError(f"{wanted.kernel} in {wanted.path} is listed twice", where=where,
                             fix="keep one of the two")
        try:
            found[wanted.path, wanted.kernel] = named_by(finder, wanted, where), wanted
        except Broken as error:
            skipped[error.where] = error.what.removeprefix(f"{error.where} ")
    for path in paths:
        for name in _marked(finder, path):
            if (path, name) in found:
                continue
            try:
                target = marked(finder, path, name, "convention")
            except InputError as error:
                # By anybody's comment: it must not end the run for all others.
                skipped[f"{path}:{name}"] = f"{error.what}; {error.fix}"
                continue
            if target is not None:
                found[path, name] = target, None
    return list(found.values())


def without_marker(finder: Finder, path: str) -> str:
    """Why no kernel of the file is a target; '' where it has none. Only for files without any target."""
    tree = finder.trees.get(path)
    names = list(kernels(tree)) if tree is not None else []
    return f"nothing says what launches {', '.join(names)}: {HOW_TO_RUN}" if names else ""


def _marked(finder: Finder, path: str) -> list[str]:
    """Kernels of a file that has the marker's word at all, which most files have not."""
    try:
        text = finder.source.read(path) if path.isprintable() else b""
    except (KeyError, OSError):
        return []
    tree = finder.trees.get(path) if _WORD in text else None
    return list(kernels(tree)) if tree is not None else []
