"""Whether a file is what `triton_edit.edited` makes of another one: an edit that comes from a job which executed other
people's code is read as data, and made anew from the file that it is meant for.

Nothing of an edit is free but numbers: which plain configurations it names, and the figures in its reason.
"""

from __future__ import annotations

import ast
import re

from kernelopt_bot import __version__
from kernelopt_bot.targets.triton_edit import (
    Handle,
    NotEditable,
    Settings,
    body_of,
    configs_of,
    edited,
    handle,
    settings_of,
)
from kernelopt_bot.targets.triton_kernels import decoded, kernels, marker

MOST_CONFIGURATIONS = 64
_DEVICE = r"[A-Za-z0-9 ()/._+-]{1,100}"
_REASON = re.compile(rf"KernelOPT [0-9A-Za-z.+-]{{1,40}}: \d+\.\d\dx \(\d+\.\d\d to \d+\.\d\d\) over the former "
                     rf"configuration on {_DEVICE}, over \d{{1,6}} recorded launches", re.ASCII)
_LINE_END = re.compile(rb"\r\n|\r|\n")


def reason_of(speedup: float, low: float, high: float, device: str, launches: int) -> str:
    """What the comment beside an edit says."""
    name = re.sub(r"[^A-Za-z0-9 ()/._+-]", "-", " ".join(device.split())[:100], flags=re.ASCII) or "a GPU"
    return (f"KernelOPT {__version__}: {speedup:.2f}x ({low:.2f} to {high:.2f}) over the former configuration on "
            f"{name}, over {launches} recorded launches")


def wanted(text: bytes, kernel: str) -> bool:
    """Whether the file has the kernel, and a marker that says what launches it."""
    try:
        found, said = kernels(ast.parse(text)), decoded(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return kernel in found and any(marker(said, found[kernel], found))


def check_edit(old: bytes, new: bytes, kernel: str) -> None:
    """Raises NotEditable, with the reason, unless `new` is `old` with other configurations for the kernel, as `edited`
    writes them."""
    try:
        new.decode()
        before, after = ast.parse(body_of(old)[1]), ast.parse(body_of(new)[1])
        place = handle(after, kernel)
        tuned = place.kind == "autotune"
        settings = _tuned(place) if tuned else [_launched(handle(before, kernel), place)]
        reason = _reason(body_of(new)[1], *(_list_lines(place) if tuned else _lines(handle(before, kernel), place)))
        if not _REASON.fullmatch(reason):
            raise NotEditable("the edit does not say its reason in our words")
        again = edited(old, kernel, settings, reason)
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as e:
        raise NotEditable(f"it cannot be read: {type(e).__name__}") from e
    if again != new:
        raise NotEditable("it changes something else than the kernel's configurations")


def _tuned(place: Handle) -> list[Settings]:
    """Raises NotEditable."""
    listed = configs_of(place.node)
    found = [settings_of(e) for e in listed.elts[:MOST_CONFIGURATIONS + 1]] if isinstance(listed, ast.List) else []
    plain = [s for s in found if s is not None]
    if not plain or len(plain) != len(found) or len(plain) > MOST_CONFIGURATIONS:
        raise NotEditable("its configurations are not plain ones")
    return plain


def _launched(before: Handle, place: Handle) -> Settings:
    """Raises ValueError where a value is no literal any more."""
    given = {k.arg: k.value for k in place.node.keywords if k.arg}
    numbers = {name: ast.literal_eval(given[name]) for name in before.constexprs}
    warps, stages = (ast.literal_eval(given[name]) if name in given and name in before.options else usual
                     for name, usual in (("num_warps", 4), ("num_stages", 3)))
    return Settings(numbers, warps, stages)


def _list_lines(place: Handle) -> tuple[int, int]:
    """Where the comment stands, as indices of lines: below the list's bracket, at most to its first entry."""
    listed = configs_of(place.node)
    assert isinstance(listed, ast.List)
    return listed.lineno, listed.elts[0].lineno - 1


def _lines(before: Handle, place: Handle) -> tuple[int, int]:
    """Likewise: directly above the statement, as many as it went down."""
    assert before.statement is not None and place.statement is not None
    end = place.statement.lineno - 1
    return max(0, end - max(0, place.statement.lineno - before.statement.lineno)), end


def _reason(body: bytes, begin: int, end: int) -> str:
    lines = [line.strip() for line in _LINE_END.split(body)[begin:end]]
    return " ".join(line.removeprefix(b"#").strip().decode("ascii") for line in lines)
