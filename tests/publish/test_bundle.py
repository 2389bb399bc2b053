"""The bundle between execute and publish, attacked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kernelopt_bot.compiler._runtime import kernel_hash
from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, write_artifact
from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate, Plan
from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Job
from kernelopt_bot.publish import bundle
from kernelopt_bot.publish.content import publication
from kernelopt_bot.publish.key import content_key
from kernelopt_bot.report.build import build
from kernelopt_bot.report.facts import faster
from kernelopt_bot.report.machine import machine_data
from kernelopt_bot.report.restore import restore
from kernelopt_bot.search.result import RunResult, Trial
from kernelopt_bot.search.sweep import Proposal, Swept, Verified
from tests.compiler.candidates import LAYER_NORM, layer_norm_plan
from tests.report import results

WRAPPER = Path(__file__).parents[1] / "data/wrappers/h200_torch2.11_inference.py"
SHA, BASE = "b" * 40, "a" * 40
JOB = Job("pull_request", "synchronize", "acme/kernels", SHA, BASE, number=7, source_branch="faster-models")
ARTIFACT = f"kernelopt_kernels/{results.TARGET.name}"
CANARY = "open('/tmp/canary', 'w').close()\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """A run with one faster target (a kernel and a recipe) and its artifact, written by the product."""
    root = tmp_path_factory.mktemp("run")
    graph = parse_graph({"index": 0, "source": WRAPPER.read_text(), "inputs": [], "outputs": [], "calls": [],
                         "is_inference": True, "is_backward": False, "saved_inputs": None})
    program = Program(results.TARGET.name, "cuda", (graph,), "2.11.0", "3.6.0", "NVIDIA H200", {})
    step = next(s for s in graph.steps if s.kind == "kernel")
    kernel = KernelCandidate("ln", step.hash, 0, (step.index,), LAYER_NORM, Plan.from_json(layer_norm_plan()), "rows",
                             rationale="one pass\nover a row")
    options = OptionsCandidate("graphs", "launch", {"triton.cudagraphs": True}, "cuda graphs")
    folder = root / ARTIFACT
    write_artifact(
        folder, class_name=results.TARGET.entry, program=program, kernels=[AdoptedKernel(kernel, {
            "step_speedup": 1.4})], recipe=Recipe.of(options.options),
        evidence={"speedup": 1.2, "low": 1.1, "high": 1.3},
        environment={"torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200", "capability": [9, 0]})
    result = replace(results.full_result(), artifact=ARTIFACT, program=None,
                     trials=tuple(Trial(c, results.passing(), adopted=True) for c in (kernel, options)))
    run = RunResult((result,), "kernelopt optimize", base_sha=BASE, head_sha=SHA, repository="acme/kernels",
                    pull_request=7)
    return run, root


@pytest.fixture
def folder(made: tuple[RunResult, Path], tmp_path: Path) -> Path:
    run, root = made
    bundle.write(tmp_path / "bundle", JOB, run, build(run), root, Swept((Verified(ARTIFACT, "stale", "other torch"),)))
    return tmp_path / "bundle"


def read(folder: Path, job: Job = JOB, root: str = "kernelopt_kernels") -> bundle.Bundle:
    scratch = folder.parent / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        return bundle.read(folder, scratch, job, root)
    except InputError:
        assert not list(scratch.iterdir()), "nothing of a refused bundle is kept"
        raise


def test_what_execute_wrote_is_published_unchanged(made: tuple[RunResult, Path], folder: Path) -> None:
    run, root = made
    held = read(folder)
    assert held.account.swept == Swept((Verified(ARTIFACT, "stale", "other torch"),))
    assert held.account.ended == (results.TARGET.name,)
    assert content_key(faster(held.run)) == content_key(faster(run)), "one result, one key"
    pair = [publication(r, build(r), place, base_ref="faster-models", base_sha=SHA)
            for r, place in ((run, root), (held.run, held.root))]
    assert pair[0] is not None and pair[0] == pair[1]


def test_a_report_comes_back_as_it_was(made: tuple[RunResult, Path], folder: Path) -> None:
    again = restore((folder / "report.json").read_bytes())
    assert machine_data(again) == json.loads((folder / "report.json").read_text())


def _edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def _kernel(folder: Path) -> Path:
    return next((folder / "artifacts" / ARTIFACT / "kernels").glob("*.py"))


def _link_file(folder: Path) -> None:
    _kernel(folder).unlink()
    (folder / "artifacts" / ARTIFACT / "kernels/x.py").symlink_to("/etc/passwd")


def _link_folder(folder: Path) -> None:
    real = folder / "artifacts"
    real.rename(folder.parent / "elsewhere")
    real.symlink_to(folder.parent / "elsewhere")


def _link_report(folder: Path) -> None:
    (folder / "report.json").rename(folder.parent / "report.json")
    (folder / "report.json").symlink_to(folder.parent / "report.json")


def _host_code_with_hash(folder: Path) -> None:
    """Hash, report and file agree on a source that has code of the host in it."""
    source = LAYER_NORM.strip() + "\n" + CANARY
    _kernel(folder).write_text(source)
    _edit(folder / "artifacts" / ARTIFACT / "manifest.json",
          lambda d: d["runs"][0].update(source_hash=kernel_hash(source)))  # type: ignore[index]
    _edit(folder / "report.json", lambda d: [g.update(source=source) for g in d["gates"] if g["id"] == "ln"])  # type: ignore[attr-defined]


def _host_code_in_replaces(folder: Path) -> None:
    """The header names what a kernel replaces: a line break there would leave the comment."""
    _edit(folder / "artifacts" / ARTIFACT / "manifest.json",
          lambda d: d["runs"][0].update(replaces=["x\n" + CANARY]))  # type: ignore[index]


def _artifact_elsewhere(place: str) -> Callable[[Path], object]:
    return lambda folder: _edit(folder / "report.json",
                                lambda d: d["targets"][0].update(artifact=place))  # type: ignore[index]


def _report(key: str, value: object) -> Callable[[Path], object]:
    return lambda folder: _edit(folder / "report.json", lambda d: d.update({key: value}))


def _target(key: str, value: object) -> Callable[[Path], object]:
    return lambda folder: _edit(folder / "report.json",
                                lambda d: d["targets"][0].update({key: value}))  # type: ignore[index]


def _claim(key: str, value: object) -> Callable[[Path], object]:
    return lambda folder: _edit(folder / "bundle.json", lambda d: d.update({key: value}))


def _account(**changes: object) -> Callable[[Path], object]:
    return lambda folder: _edit(folder / "account.json", lambda d: d["swept"].update(changes))  # type: ignore[attr-defined]


def _append(name: str, text: str) -> Callable[[Path], object]:
    def attack(folder: Path) -> None:
        path = next((folder / "artifacts" / ARTIFACT).glob(name))
        path.write_text(path.read_text() + text)
    return attack


def _extra(name: str) -> Callable[[Path], object]:
    def attack(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    return attack


def _sparse(name: str, size: int) -> Callable[[Path], object]:
    """Much that unpacks from little, as of an archive's zeros."""
    def attack(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("ab") as file:
            file.truncate(size)
    return attack


def _many(folder: Path) -> None:
    for i in range(bundle.MAX_FILES + 1):
        (folder / f"c{i}.svg").touch()


def _forged_gain(folder: Path) -> None:
    _edit(folder / "report.json", lambda d: d["targets"][0]["headline"].update(low=9.0))  # type: ignore[index]


def _other_kernel(folder: Path) -> None:
    _edit(folder / "report.json", lambda d: [
        g.update(source=g["source"].replace("tl.load", "tl.store")) for g in d["gates"] if g["id"] == "ln"])  # type: ignore[attr-defined]


def _other_options(folder: Path) -> None:
    _edit(folder / "report.json", lambda d: [g.update(options={}) for g in d["gates"] if g["id"] == "graphs"])  # type: ignore[attr-defined]


def _raw(name: str, change: Callable[[dict[str, object]], object], text: str) -> Callable[[Path], object]:
    """`text` for the value HERE, which no writer of JSON would give."""
    def attack(folder: Path) -> None:
        _edit(folder / name, change)
        path = folder / name
        path.write_text(path.read_text().replace('"HERE"', text))
    return attack


def _noise(data: dict[str, object]) -> None:
    data["noise"][0].update(low="HERE")  # type: ignore[index]


def _evidence(data: dict[str, object]) -> None:
    data["evidence"].update(speedup="HERE")  # type: ignore[attr-defined]


def _failed_gate(folder: Path) -> None:
    _edit(folder / "report.json", lambda d: d["targets"][0]["stitched"][-1].update(status="fail"))  # type: ignore[index]


def _failed_piece(folder: Path) -> None:
    _edit(folder / "report.json", lambda d: [g["verdicts"][1].update(status="not measured") for g in d["gates"]])  # type: ignore[attr-defined]


MANIFEST = f"artifacts/{ARTIFACT}/manifest.json"
ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link for a kernel": (_link_file, "no plain file"),
    "a link for a folder": (_link_folder, "no plain file"),
    "a link for the report": (_link_report, "no plain file"),
    "a pipe": (lambda f: os.mkfifo(f / "chart.svg"), "no plain file"),
    "a path out of the root": (_artifact_elsewhere("../../.github/workflows"), "another place"),
    "an absolute path": (_artifact_elsewhere("/etc"), "another place"),
    "the workflows' folder": (_artifact_elsewhere(".github/workflows"), "another place"),
    "a target out of the root": (_target("name", "../../x"), "malformed"),
    "host code in a kernel": (_append("kernels/*", CANARY), "hash of the verified one"),
    "host code with its hash": (_host_code_with_hash, "breaks the contract"),
    "host code in a header": (_host_code_in_replaces, ""),
    "host code in __init__.py": (_append("__init__.py", CANARY), "__init__.py"),
    "host code in the runtime": (_append("_runtime.py", CANARY), "unknown runtime"),
    "words in README.md": (_append("README.md", "\n@octocat merge this\n"), "README.md"),
    "a comment in a kernel": (_append("kernels/*", "# @octocat\n"), "not what this release writes"),
    "an attribute": (_append(".gitattributes", "* filter=evil\n"), ".gitattributes"),
    "an extra file at the top": (_extra("evil.py"), "no bundle has"),
    "an extra folder": (_extra("hooks/pre-push"), "no plain file"),
    "an extra file in the artifact": (_extra(f"artifacts/{ARTIFACT}/evil.py"), "no file of an artifact"),
    "an artifact of no target": (_extra("artifacts/kernelopt_kernels/other/manifest.json"), "no faster target"),
    "a workflow": (_extra("artifacts/.github/workflows/evil.yml"), "no faster target"),
    "a large kernel": (_sparse(f"artifacts/{ARTIFACT}/kernels/x.py", 1 << 40), "bytes"),
    "a large report": (_sparse("report.json", 1 << 40), "bytes"),
    "a large sum": (lambda f: [_sparse(f"c{i}.svg", bundle.MAX_CHART)(f) for i in range(60)], "MiB"),
    "too many files": (_many, "files"),
    "another head": (_report("head_sha", "c" * 40), "another job"),
    "another repository": (_report("repository", "acme/other"), "another job"),
    "another pull request": (_report("pull_request", 8), "another job"),
    "no pull request": (_report("pull_request", None), "another job"),
    "a claim of another head": (_claim("head_sha", "c" * 40), "another job"),
    "a claim of another release": (_claim("release", "9.9.9"), "another job"),
    "a claim of more": (_claim("pull_request", "7"), "pull_request"),
    "a report of another shape": (_report("targets", {}), "malformed"),
    "a figure that is a text": (_target("spent", {"wall_s": "x"}), "malformed"),
    "an interval beside its gain": (_forged_gain, "interval"),
    "another kernel than the report's": (_other_kernel, "not what this release writes"),
    "other options than the report's": (_other_options, "other compiler options"),
    "another class": (_target("entry", "Other"), "another target"),
    "a removal from a job that sweeps nothing": (_account(proposals=[asdict(Proposal(ARTIFACT, "stale", "remove",
                                                                                     "x"))]), "proposals"),
    "a removal out of the root": (_account(verified=[asdict(Verified(".github/workflows", "stale"))]), "another place"),
    "a removal of the root": (_account(verified=[asdict(Verified("kernelopt_kernels", "stale"))]), "another place"),
    "a removal beside the root": (_account(verified=[asdict(Verified("kernelopt_kernels/../src", "stale"))]), "place"),
    "one artifact twice": (_account(verified=[asdict(Verified(ARTIFACT, s)) for s in ("stale", "verified")]), "twice"),
    "a search of no target": (lambda f: _edit(f / "account.json", lambda d: d.update(ended=["x"])), "no report"),
    "kernels of a target that is not called faster": (_target("faster", False), "what it calls faster"),
    "a whole that failed a gate": (_failed_gate, "did not pass every gate"),
    "a whole that no gate saw": (_target("stitched", []), "did not pass every gate"),
    "a piece that a gate never answered for": (_failed_piece, "did not pass every gate"),
    "a figure that is no number": (_raw("report.json", _noise, "NaN"), "no number"),
    "a figure without end": (_raw("report.json", _noise, "1e999"), "no number"),
    "a whole number of a thousand digits": (_raw("report.json", _noise, "9" * 1000), "larger than any"),
    "a number of ten million digits": (_raw("report.json", _noise, "9" * 10_000_000), "larger than any"),
    "a gain in the manifest that no float holds": (_raw(MANIFEST, _evidence, "9" * 400), "manifest.json"),
    "a gain in the manifest without an interval": (lambda f: _edit(f / MANIFEST, lambda d: d["evidence"].pop("low")),  # type: ignore[attr-defined]
                                                   "UndefinedError"),
    "not JSON": (lambda f: (f / "report.json").write_text("[" * 100_000), "malformed"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_whole(folder: Path, name: str) -> None:
    attack, said = ATTACKS[name]
    attack(folder)
    with pytest.raises(InputError) as error:
        read(folder)
    assert said in str(error.value), str(error.value)


def test_another_place_than_the_policy_says(folder: Path) -> None:
    with pytest.raises(InputError, match="another place"):
        read(folder, root="elsewhere")


@pytest.mark.parametrize("job", [replace(JOB, head_sha="c" * 40), replace(JOB, number=8), replace(
    JOB, repository="acme/other"), replace(JOB, operation="verify")], ids=["head", "number", "repository", "operation"])
def test_a_bundle_of_another_job(folder: Path, job: Job) -> None:
    with pytest.raises(InputError, match="another job"):
        read(folder, job)
