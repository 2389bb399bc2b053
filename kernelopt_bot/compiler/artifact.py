"""The artifact folder: written atomically, read back as data that nobody vouches for."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelopt_bot import __version__
from kernelopt_bot.compiler._runtime import Run, kernel_hash, load_manifest, substitute
from kernelopt_bot.compiler.bundle import runtime_text
from kernelopt_bot.compiler.example import Example, name_of_test, text_of_test
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import KernelCandidate, Scalar
from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.report.templates import environment as templates


@dataclass(frozen=True)
class AdoptedKernel:
    """A kernel candidate that passed, with JSON evidence (`step_speedup` is shown in the kernel's header)."""

    candidate: KernelCandidate
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Inductor options for the whole target; with `clone_outputs`, outputs survive the next call."""

    options: Mapping[str, Scalar] = field(default_factory=dict)
    clone_outputs: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Scalar]) -> Recipe:
        """CUDA graphs write into the same memory at every call, so their outputs are cloned."""
        return cls(options, clone_outputs=bool(options.get("triton.cudagraphs")))


def write_artifact(folder: Path, *, class_name: str, program: Program, kernels: Sequence[AdoptedKernel],
                   recipe: Recipe, environment: Mapping[str, Any], evidence: Mapping[str, Any] | None = None,
                   example: Example | None = None) -> Path:
    """Write the artifact of `program.target` to `folder`, replacing what is there in one rename.

    `program` is the target as captured under the recipe's options: it says how often each run occurs. `environment`
    holds `torch`, `triton`, `device` and `capability` ([9, 0]; absent for the CPU). `evidence` of the whole:
    `speedup`, `low`, `high`. With an `example` the folder gets its test, `test_kernelopt_TARGET.py`.

    Raises InputError if a kernel replaces nothing in `program`, or if the folder cannot
    be written; Unavailable if the disk is full. Nothing half-written stays."""
    entries, sources = _entries(program, kernels)
    manifest = {
        "schema": 1, "release": __version__, "target": program.target, "class": class_name,
        "recipe": {"options": dict(recipe.options), "clone_outputs": recipe.clone_outputs},
        "environment": dict(environment), "runs": entries, "evidence": {**(evidence or {}), "report": "README.md"}}
    texts = dict(sources)
    if example is not None:
        manifest["example"] = example.to_json()
        texts[name_of_test(program.target)] = text_of_test(example, class_name, environment)
    texts["manifest.json"] = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False) + "\n"
    texts["README.md"] = readme_text(manifest, [k.candidate.technique for k in kernels], ".".join(folder.parts[-2:]))
    texts["__init__.py"] = _render("__init__.py.j2", class_name=class_name)
    texts["_runtime.py"] = runtime_text()
    texts[".gitattributes"] = "* linguist-generated=true\n"
    try:
        _swap_in(folder, texts)
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable("the disk is full", where=str(folder), fix="free space and run again") from e
        raise InputError(f"the artifact cannot be written: {e.strerror}", where=str(folder),
                         fix="set artifact.root to a folder that can be written") from e
    return folder


def kernel_text(candidate: KernelCandidate, replaces: Sequence[str], evidence: Mapping[str, Any]) -> str:
    """A kernel file. `replaces`: names of the steps whose place it takes."""
    return _render("kernel.py.j2", technique=_line(candidate.technique), author=_line(candidate.author),
                   replaces=replaces, rationale=textwrap.wrap(_line(candidate.rationale), 110), evidence=evidence,
                   source=candidate.source.strip() + "\n")


def readme_text(manifest: Mapping[str, Any], techniques: Sequence[str], package: str) -> str:
    """README.md. `techniques`: one for each of the manifest's runs; `package`: what `optimize` is imported from."""
    runs = [{**e, "technique": technique} for e, technique in zip(manifest["runs"], techniques, strict=True)]
    evidence = {name: value for name, value in manifest["evidence"].items() if name != "report"}
    # A manifest that was read back has them in this order.
    recipe = {**manifest["recipe"], "options": dict(sorted(manifest["recipe"]["options"].items()))}
    return _render("README.md.j2", target=manifest["target"], class_name=manifest["class"], evidence=evidence,
                   environment=manifest["environment"], recipe=recipe, package=package, runs=runs)


def stitch(program: Program, kernels: Sequence[AdoptedKernel]) -> tuple[str, ...]:
    """The text of each graph's wrapper with the kernels in place, for reading."""
    runs = {r.hash: r for r in (_run(k.candidate) for k in kernels)}
    return tuple(substitute(g.source, runs).text for g in program.graphs)


def _run(candidate: KernelCandidate) -> Run:
    return Run(candidate.run_hash, len(candidate.steps), candidate.source, candidate.plan.to_json(), (), candidate.id)


def _entries(program: Program, kernels: Sequence[AdoptedKernel]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Manifest entries, and each kernel file's text, by its path."""
    runs = {k.candidate.run_hash: _run(k.candidate) for k in kernels}
    if len(runs) != len(kernels):
        raise InputError("two adopted kernels replace the same run", fix="adopt one of them")
    done = [substitute(g.source, runs) for g in program.graphs]
    entries: list[dict[str, Any]] = []
    sources: dict[str, str] = {}
    for index, kernel in enumerate(kernels):
        candidate = kernel.candidate
        counts = [d.replaced.get(candidate.run_hash, 0) for d in done]
        if not sum(counts):
            reasons = "; ".join(r for d in done for r in d.skipped) or "its run is not in the program"
            raise InputError(f"kernel {candidate.id} replaces nothing", where=reasons,
                             fix="capture the program under the recipe's options and search again")
        steps = program.graphs[candidate.graph].steps
        replaces = [s.name for s in steps if s.index in candidate.steps]
        path = f"kernels/{_slug(replaces[0])}_{index}.py"
        source = candidate.source.strip() + "\n"
        entries.append({
            "hash": candidate.run_hash, "steps": len(candidate.steps), "kernel": path, "plan": candidate.plan.to_json(),
            "source_hash": kernel_hash(source), "count": sum(counts), "graphs": counts, "replaces": replaces,
            "evidence": dict(kernel.evidence)})
        sources[path] = kernel_text(candidate, replaces, kernel.evidence)
    return entries, sources


def _line(text: str) -> str:
    """One line without control characters: it ends up in a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _slug(name: str) -> str:
    """`triton_per_fused_native_layer_norm_0` -> `native_layer_norm`."""
    short = name.split("_fused_", 1)[-1].rstrip("0123456789").strip("_")
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in short)[:48].strip("_").lower() or "kernel"


def _render(template: str, **values: Any) -> str:
    text = templates("artifact").get_template(template).render(release=__version__, **values)
    return text.rstrip() + "\n"


def _swap_in(folder: Path, texts: Mapping[str, str]) -> None:
    """Write beside the folder, check, then rename; what was there before goes only after."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        new, old = place / "new", place / "old"
        for name, text in texts.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        load_manifest(new)
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
