"""A committed artifact read as data that nobody vouches for. Nothing of it is imported or executed here.

What a release can derive is derived and compared: the runtime, `__init__.py`, `.gitattributes`. Kernel files must have
the manifest's `source_hash` and conform to the contract with the manifest's plan. Not compared, since nothing executes
them: README.md, the comments before a kernel, and the figures under `evidence`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelopt_bot import __version__
from kernelopt_bot.compiler import releases
from kernelopt_bot.compiler._runtime import ArtifactError, Run, load_manifest
from kernelopt_bot.compiler.artifact import Recipe
from kernelopt_bot.compiler.example import Example, name_of_test, text_of_test
from kernelopt_bot.contract import options as options_contract
from kernelopt_bot.contract import plan as plan_contract
from kernelopt_bot.contract.candidate import Lever, OptionsCandidate, Plan, Scalar
from kernelopt_bot.errors import InputError
from kernelopt_bot.report import plain_json
from kernelopt_bot.report.templates import environment as templates

LIMIT_BYTES = 4 << 20
"""Largest file of an artifact that is read; the runtime has some 60 KiB."""
LIMIT_FILES = 256
FIXED = ("manifest.json", "_runtime.py", "__init__.py", "README.md", ".gitattributes")
"""Files of every artifact."""
_TEST = re.compile(r"test_kernelopt_[A-Za-z0-9_]{1,128}\.py", re.ASCII)
_KERNEL = re.compile(r"kernels/[a-z0-9_]{1,64}\.py", re.ASCII)
_TARGET = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}", re.ASCII)
_KEYS: Mapping[str, frozenset[str]] = {
    "": frozenset({"schema", "release", "target", "class", "recipe", "environment", "runs", "evidence",
                   "example"}),
    "recipe": frozenset({"options", "clone_outputs"}),
    "environment": frozenset({"torch", "triton", "device", "driver", "capability"}),
    "evidence": frozenset({"speedup", "low", "high", "baseline", "metric", "cache", "report"}),
    "runs": frozenset({"hash", "steps", "kernel", "plan", "source_hash", "count", "graphs", "replaces", "evidence"}),
}


class OtherRelease(Exception):
    """The artifact has the runtime of another release: nothing more of it was read."""

    def __init__(self, release: str) -> None:
        self.release = release
        super().__init__(f"written by release {release}, this is {__version__}")


class Modified(Exception):
    """The artifact is not what this release would have written: `modified: FILE: why`."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"modified: {file}: {why}")


@dataclass(frozen=True)
class Committed:
    target: str
    class_name: str
    options: Mapping[str, Scalar]
    environment: Mapping[str, Any]
    kernels: tuple[tuple[Run, Plan], ...]
    entries: tuple[Mapping[str, Any], ...]
    """Of the manifest, in the order of `kernels`."""
    texts: Mapping[str, str]
    """Every file, by its path in the folder."""
    example: Example | None = None
    """What its test is made from; None where it has none."""

    def option_candidates(self) -> tuple[OptionsCandidate, ...]:
        """The recipe, one candidate for each lever."""
        found: dict[Lever, dict[str, Scalar]] = {}
        for name, value in self.options.items():
            found.setdefault(options_contract.ALLOWED[name].lever, {})[name] = value
        return tuple(OptionsCandidate(f"recipe-{lever}", lever, options, "recipe") for lever, options in found.items())


def read(folder: Path, scratch: Path, earlier: Mapping[str, str] | None = None) -> Committed:
    """Read and check the artifact `folder`; `scratch` is an empty folder for a copy of its texts. `earlier`: digests of
    the runtimes of earlier releases; None for those that this one knows.

    Raises Modified, OtherRelease, and InputError where there is no artifact at all."""
    if not (folder / "manifest.json").exists() and not (folder / "manifest.json").is_symlink():
        raise InputError("there is no artifact here", where=str(folder),
                         fix="give a folder that holds manifest.json, such as kernelopt_kernels/<target>")
    texts = _texts(folder)
    release = releases.release_of(texts.get("_runtime.py", ""), releases.read_table() if earlier is None else earlier)
    if not release:
        raise Modified("_runtime.py", "unknown runtime: of no release up to " + __version__)
    if release != __version__:
        raise OtherRelease(release)
    data = _manifest(texts["manifest.json"])
    for name in ("__init__.py", ".gitattributes"):
        if texts.get(name) != _fixed(name, data["class"]):
            raise Modified(name, "not what this release writes" if name in texts else "missing")
    test = _test(data)
    if any(texts.get(name) != text for name, text in test.items()):
        raise Modified(next(iter(test)), "not what this release writes")
    if "README.md" not in texts:
        raise Modified("README.md", "missing")
    for name, text in texts.items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_text(text, encoding="utf-8", newline="\n")
    try:
        loaded = load_manifest(scratch)
    except ArtifactError as e:
        raise Modified("manifest.json", str(e)) from None
    if loaded.edited:
        raise Modified(loaded.edited[0], "its code does not have the hash of the verified one")
    hashes = [entry["hash"] for entry in data["runs"]]
    if len(set(hashes)) != len(hashes):
        raise Modified("manifest.json", "a run is there twice")
    kernels = tuple(_kernel(loaded.runs, entry) for entry in data["runs"])
    if unlisted := sorted(set(texts) - set(FIXED) - set(test) - {run.name for run, _ in kernels}):
        raise Modified(unlisted[0], "a file that no run of the manifest names")
    _recipe(data["recipe"], "capability" in data["environment"])
    return Committed(data["target"], data["class"], data["recipe"]["options"], data["environment"], kernels,
                     tuple(data["runs"]), texts, Example.from_json(data["example"]) if "example" in data else None)


def _texts(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise Modified(name, "a link")
        if path.is_dir() and name == "kernels":
            continue
        if not path.is_file() or (
                name not in FIXED and not _KERNEL.fullmatch(name) and not _TEST.fullmatch(name)):
            raise Modified(name, "no file of an artifact")
        if len(found) >= LIMIT_FILES or path.stat().st_size > LIMIT_BYTES:
            raise Modified(name, f"over {LIMIT_BYTES} bytes, or one of over {LIMIT_FILES} files")
        try:
            found[name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise Modified(name, f"cannot be read: {type(e).__name__}") from None
    return found


def _manifest(text: str) -> dict[str, Any]:
    """Its own keys and no others, with plain names: `class` is written into `__init__.py`."""
    try:
        plain_json.loads(text)  # Of its numbers.
        data = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as e:
        raise Modified("manifest.json", f"not JSON of an artifact: {e}") from None
    _keys(data, "", optional=frozenset({"example"}))
    for part in ("recipe", "environment", "evidence"):
        _keys(data[part], part, optional=_KEYS["evidence"] | {"driver", "capability"})
    if not isinstance(data["runs"], list):
        raise Modified("manifest.json", "runs is no list")
    for entry in data["runs"]:
        _keys(entry, "runs", optional=frozenset())
    if data["release"] != __version__:
        raise Modified("manifest.json", f"written by release {data['release']!r}, this is {__version__}")
    class_name = data["class"]
    if not (isinstance(class_name, str) and class_name.isascii() and class_name.isidentifier()):
        raise Modified("manifest.json", "class is no name of a class")
    if not (isinstance(data["target"], str) and _TARGET.fullmatch(data["target"])):
        raise Modified("manifest.json", "target is no name of a target")
    return data  # type: ignore[no-any-return]


def _keys(data: object, part: str, *, optional: frozenset[str]) -> None:
    if not isinstance(data, dict):
        raise Modified("manifest.json", f"{part or 'the whole'} is no object")
    if unknown := sorted(set(data) - _KEYS[part]):
        raise Modified("manifest.json", f"unknown key {unknown[0]!r}{f' in {part}' if part else ''}")
    if missing := sorted(_KEYS[part] - optional - set(data)):
        raise Modified("manifest.json", f"no {missing[0]}{f' in {part}' if part else ''}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _test(data: Mapping[str, Any]) -> dict[str, str]:
    """The artifact's test by its name, as this release writes it; empty where the manifest has no example."""
    if "example" not in data:
        return {}
    try:
        example = Example.from_json(data["example"])
    except ValueError as e:
        raise Modified("manifest.json", str(e)) from None
    return {name_of_test(data["target"]): text_of_test(example, data["class"], data["environment"])}


def _fixed(name: str, class_name: str) -> str:
    if name == ".gitattributes":
        return "* linguist-generated=true\n"
    text = templates("artifact").get_template("__init__.py.j2").render(release=__version__, class_name=class_name)
    return text.rstrip() + "\n"


def _kernel(runs: Mapping[str, Run], entry: Mapping[str, Any]) -> tuple[Run, Plan]:
    run = runs[entry["hash"]]
    try:
        plan = Plan.from_json(entry["plan"])
    except (TypeError, KeyError, ValueError) as e:
        raise Modified("manifest.json", f"the plan of {run.name}: {e}") from None
    if json.loads(json.dumps(plan.to_json())) != entry["plan"]:
        raise Modified("manifest.json", f"the plan of {run.name} is not as it is written")
    if broken := plan_contract.check(plan, run.source):
        raise Modified(run.name, f"breaks the contract: {broken[0]}")
    return run, plan


def _recipe(recipe: Mapping[str, Any], gpu: bool) -> None:
    options = recipe["options"]
    for name, value in options.items():
        allowed = options_contract.ALLOWED.get(name)
        lever = allowed.lever if allowed else "dispatch"
        broken = options_contract.check(lever, {name: value}, "cuda" if gpu else "cpu")
        if broken:
            raise Modified("manifest.json", f"the recipe breaks the contract: {broken[0]}")
    if recipe["clone_outputs"] is not Recipe.of(options).clone_outputs:
        raise Modified("manifest.json", "clone_outputs does not follow from the options")
