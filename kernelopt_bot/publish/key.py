"""The content key: what a commit of ours holds, so that the same result is never published twice.

It covers what would run and where it was verified, not how fast it was measured: a second run over the same commit that
adopts the same pieces has the same key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.report.facts import adopted
from kernelopt_bot.search.result import TargetResult, Trial

_TRAILER = "KernelOPT-Key"
_LINE = re.compile(rf"^{_TRAILER}: ([0-9a-f]{{64}})$", re.MULTILINE)
_MORE = re.compile(r"^KernelOPT-(Tree|Base): ([0-9a-f]{16,64})$", re.MULTILINE)
_EDITS = "KernelOPT-Edits"
_EDITED = re.compile(rf"^{_EDITS}: ([0-9a-f ]{{16,20000}})$", re.MULTILINE)
_ENVIRONMENT = ("torch", "triton", "device", "capability")


def content_key(results: Iterable[TargetResult], removed: Iterable[str] = (),
                before: Mapping[str, bytes] | None = None) -> str:
    """SHA-256, in hexadecimal, over the adopted pieces, the verified inputs, the device and the versions; `removed` are
    paths that go away, `before` the files that are edited in place, as they are before it."""
    what: list[Any] = [
        {
            "path": r.target.path,
            "entry": r.target.entry,
            "artifact": r.artifact,
            "covered": sorted(r.covered),
            "environment": _where(r.environment),
            "pieces": [_piece(t) for t in adopted(r)],
        }
        for r in sorted(results, key=lambda r: r.target.name)
        if adopted(r)
    ]
    if gone := sorted(removed):
        what.append({"removed": gone})
    if before:
        what.append({"edited": {path: hashlib.sha256(text).hexdigest() for path, text in before.items()}})
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def with_key(message: str, key: str, edited: Iterable[str] = ()) -> str:
    """The commit message with the key as its last trailer; `edited`: targets whose files are edited in place."""
    names = " ".join(base_name(name) for name in sorted(edited))
    more = f"{_EDITS}: {names}\n" if names else ""
    return f"{message.rstrip()}\n\n{more}{_TRAILER}: {key}\n"


def key_of(message: str) -> str:
    """The key in a commit message of ours; '' if there is none. The last line counts, whatever stands above it."""
    found = _LINE.findall(message)
    return str(found[-1]) if found else ""


@dataclass(frozen=True)
class Trailers:
    """What a commit of ours says about itself; '' where it says nothing."""

    key: str = ""
    tree: str = ""
    """The SHA of its tree: an amended or rebased commit keeps our words, and has another tree."""
    base: str = ""
    """`base_name` of the branch that it was made for."""
    edits: frozenset[str] = frozenset()
    """`base_name` of each target whose file it edits in place."""


def with_trailers(message: str, *, tree: str, base_ref: str) -> str:
    """A message that ends with its key, with the commit's tree and the branch it is for."""
    return f"{message.rstrip()}\nKernelOPT-Tree: {tree}\nKernelOPT-Base: {base_name(base_ref)}\n"


def trailers_of(message: str) -> Trailers:
    """What is read of a commit's message; the last of each counts."""
    more = dict(_MORE.findall(message))
    edits = _EDITED.findall(message)
    return Trailers(key_of(message), more.get("Tree", ""), more.get("Base", ""),
                    frozenset(edits[-1].split()) if edits else frozenset())


def base_name(ref: str) -> str:
    """A branch's or a target's name for a commit's message: names may hold mentions and references."""
    return hashlib.sha256(ref.encode()).hexdigest()[:16]


def _where(environment: Mapping[str, Any]) -> dict[str, str]:
    """The kind of device and the versions: not which one of its kind, or every other runner would publish anew."""
    known = {k: str(environment[k]) for k in _ENVIRONMENT if k in environment}
    gpu = environment.get("gpu")
    if isinstance(gpu, Mapping):
        return known | {k: str(gpu.get(k)) for k in ("name", "capability")}
    return known | ({"gpu": str(gpu)} if gpu else {})


def _piece(t: Trial) -> dict[str, object]:
    c = t.candidate
    if isinstance(c, KernelCandidate):
        return {"run": c.run_hash, "source": c.source, "plan": c.plan.to_json()}
    return {"lever": c.lever, "options": dict(c.options)}
