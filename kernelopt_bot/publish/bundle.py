"""What goes from execute to publish: a folder that other people's code may have had its hands in.

    bundle.json                     which job it is for
    report.json, report.md, *.svg   what people read
    account.json                    which searches ended, what became of committed artifacts, a sweep's proposals
    artifacts/ROOT/TARGET/...       what would be committed
    edits/TARGET.py                 the file of a Triton kernel, as it would be committed

`read` takes nothing on trust: names come from a list, links and special files are refused, sizes and counts are limited
before anything is read, and of an artifact only what this release renders anew from plan and kernel is let through. An
edit is for `publish.edits`, which has the file that it is meant for.
Figures are shown and never decide anything here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernelopt_bot import __version__
from kernelopt_bot.compiler.artifact import kernel_text, readme_text
from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate
from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.events.job import Job
from kernelopt_bot.publish.files import MAX_FILE_BYTES, read_folder
from kernelopt_bot.report import plain_json
from kernelopt_bot.report.blocks import Report
from kernelopt_bot.report.facts import adopted, faster, is_faster
from kernelopt_bot.report.restore import restore
from kernelopt_bot.report.summary import RunSummary, summarise
from kernelopt_bot.report.write import write as write_report
from kernelopt_bot.report.write import write_whole
from kernelopt_bot.search.committed import Committed, Modified, OtherRelease
from kernelopt_bot.search.committed import read as read_artifact
from kernelopt_bot.search.result import RunResult, TargetResult
from kernelopt_bot.search.sweep import Swept
from kernelopt_bot.search.sweeping import ended
from kernelopt_bot.targets.triton_kernels import TritonTarget

MAX_FILES = 2000
MAX_BYTES = 96 << 20
LIMITS = {"bundle.json": 64 << 10, "account.json": 4 << 20, "report.json": 64 << 20, "report.md": 20 << 20}
"""Bytes of each file at the top; charts and the files of artifacts have their own."""
MAX_CHART = 2 << 20
MAX_FILE = 4 << 20
_CHART = re.compile(r"[A-Za-z0-9_-]{1,300}\.svg", re.ASCII)
_ARTIFACT = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}", re.ASCII)
_PLAIN = re.compile(r"[ -~]{0,300}")
_FOLDER, _EDITS = "artifacts", "edits"


@dataclass(frozen=True)
class Account:
    """What stands in no report."""

    ended: tuple[str, ...]
    """Targets whose search came to its end, so that finding nothing there means something."""
    swept: Swept
    """Of `verify` only its `verified`."""


@dataclass(frozen=True)
class Claim:
    """Which job the bundle says that it is for."""

    schema: int
    release: str
    repository: str
    head_sha: str
    pull_request: int
    """0 if there is none."""
    operation: str


@dataclass(frozen=True)
class Bundle:
    run: RunResult
    summary: RunSummary
    root: Path
    """Holds the artifacts of faster targets, rendered anew, at their places in the repository."""
    account: Account


_CLAIM, _ACCOUNT = TypeAdapter(Claim), TypeAdapter(Account)


def claim_of(job: Job) -> Claim:
    return Claim(1, __version__, job.repository, job.head_sha, job.number, job.operation)


def write(folder: Path, job: Job, run: RunResult, report: Report, artifacts: Path,
          swept: Swept | None = None) -> None:
    """Writes the bundle; `artifacts` is the folder below which every result's artifact lies. Raises UserError."""
    for r in run.results:
        if r.artifact and is_faster(r):
            for name, content in read_folder(artifacts, r.artifact).items():
                write_whole(folder / _FOLDER / name, content)
        if is_faster(r) and r.edits:
            write_whole(folder / _edit_of(r), r.edits[r.target.path])
    write_report(report, folder)
    account = Account(tuple(r.target.name for r in run.results if ended(r)), swept or Swept())
    write_whole(folder / "account.json", _ACCOUNT.dump_json(account, indent=1))
    # Last: without it there is no bundle.
    write_whole(folder / "bundle.json", _CLAIM.dump_json(claim_of(job), indent=1))


def read(folder: Path, scratch: Path, job: Job, artifact_root: str) -> Bundle:
    """The bundle of `job`, whose policy says `artifact_root`; `scratch` is an empty folder for what was let through.

    Raises InputError for everything that this release's execute phase would not have written for this job.
    """
    try:
        return _read(folder, scratch, job, artifact_root)
    except UserError:
        raise
    except Exception as e:
        # What nobody has thought of must not end the phase before the check is concluded.
        raise _refused(f"it cannot be read: {type(e).__name__}", folder.name) from e


def _read(folder: Path, scratch: Path, job: Job, artifact_root: str) -> Bundle:
    """Raises InputError."""
    _listed(folder)
    claim, wanted = _json(folder / "bundle.json", _CLAIM), claim_of(job)
    for name, value in vars(wanted).items():
        if getattr(claim, name) != value:
            raise _refused(f"it is for another job: {name} is {getattr(claim, name)!r:.80}, not {value!r:.80}",
                           "bundle.json")
    text = _content(folder / "report.json", LIMITS["report.json"])
    run = restore(text)
    _same_job(run, job)
    summary = summarise(plain_json.loads(text))
    if {t.name for t in summary.faster} != {r.target.name for r in faster(run)}:
        raise _refused("its figures and what it calls faster differ", "report.json")
    account = _account(folder, run, job, artifact_root)
    artifacts: dict[str, Mapping[str, str]] = {}
    edits: dict[str, bytes] = {}
    for r in faster(run):
        if isinstance(r.target, TritonTarget):
            _passed(r)
            edits[_edit_of(r)] = _content(folder / _edit_of(r), MAX_FILE_BYTES)
        if r.artifact:
            _passed(r)
            artifacts[r.artifact] = _artifact(folder / _FOLDER, r, artifact_root)
    _no_others(folder, artifacts, edits)
    run = replace(run, results=tuple(
        replace(r, edits={r.target.path: edits[at]}) if (at := _edit_of(r)) in edits else r for r in run.results))
    for path, texts in artifacts.items():
        for name, content in texts.items():
            write_whole(scratch / path / name, content.encode())
    return Bundle(run, summary, scratch, account)


def _edit_of(r: TargetResult) -> str:
    """Place in the bundle; a target's name is a plain word."""
    return f"{_EDITS}/{r.target.name}.py"


def _refused(what: str, where: str) -> InputError:
    return InputError(f"the bundle is refused: {what}", where=repr(where)[:300],
                      fix="run execute and publish with one release of KernelOPT, and hand the folder on unchanged; "
                          "nothing was published")


def _listed(folder: Path) -> None:
    """Raises InputError unless the folder holds only files that a bundle may hold, within the limits."""
    if folder.is_symlink() or not folder.is_dir():
        raise _refused("there is none", folder.name)
    count = total = 0
    stack = [folder]
    while stack:
        with os.scandir(stack.pop()) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            relative = Path(entry.path).relative_to(folder).as_posix()
            status = entry.stat(follow_symlinks=False)
            count += 1
            if count > MAX_FILES:
                raise _refused(f"over {MAX_FILES} files", relative)
            if stat.S_ISDIR(status.st_mode) and relative.split("/")[0] in (_FOLDER, _EDITS):
                stack.append(Path(entry.path))
                continue
            if not stat.S_ISREG(status.st_mode):
                raise _refused("something that is no plain file", relative)
            if status.st_size > _limit(relative):
                raise _refused(f"{status.st_size} bytes", relative)
            total += status.st_size
            if total > MAX_BYTES:
                raise _refused(f"over {MAX_BYTES >> 20} MiB", relative)


def _limit(relative: str) -> int:
    """Bytes that the file may have. Raises InputError for a file that no bundle has."""
    if relative in LIMITS:
        return LIMITS[relative]
    if _CHART.fullmatch(relative):
        return MAX_CHART
    if relative.startswith(f"{_FOLDER}/"):
        return MAX_FILE
    if relative.startswith(f"{_EDITS}/"):
        return MAX_FILE_BYTES
    raise _refused("a file that no bundle has", relative)


def _content(path: Path, limit: int) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            text = file.read(limit + 1)
    except OSError as e:
        raise _refused(f"it cannot be read: {e.strerror}", path.name) from None
    if len(text) > limit:
        raise _refused(f"over {limit} bytes", path.name)
    return text


def _json(path: Path, shape: TypeAdapter[Any]) -> Any:
    try:
        return shape.validate_json(_content(path, LIMITS[path.name]), strict=True)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        raise _refused(f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}", path.name) from None


def _same_job(run: RunResult, job: Job) -> None:
    claims = (("repository", run.repository, job.repository), ("head_sha", run.head_sha, job.head_sha),
              ("pull_request", run.pull_request, job.number or None))
    for name, said, wanted in claims:
        if said != wanted:
            raise _refused(f"its report is of another job: {name} is {said!r:.80}, not {wanted!r:.80}", "report.json")


def _passed(r: TargetResult) -> None:
    """Raises InputError for adopted pieces that, by the report's own words, did not pass."""
    whole = {v.gate for v in r.stitched}
    judged = [v for t in adopted(r) for v in t.verdicts] + list(r.stitched)
    if not all(v.lets_on for v in judged) or not whole >= {"model", "performance"}:
        raise _refused("something adopted did not pass every gate", r.target.name)


def _account(folder: Path, run: RunResult, job: Job, artifact_root: str) -> Account:
    account: Account = _json(folder / "account.json", _ACCOUNT)
    swept = account.swept
    if not set(account.ended) <= {r.target.name for r in run.results}:
        raise _refused("a search that no report tells of", "account.json")
    if not job.sweep and swept != Swept(swept.verified):
        raise _refused("a sweep's proposals from a job that is none", "account.json")
    named = [x.artifact for group in (swept.verified, swept.proposals) for x in group]
    for artifact in named:
        if not _ARTIFACT.fullmatch(artifact.removeprefix(f"{artifact_root}/")) or "/" not in artifact:
            raise _refused("an artifact at another place than below the policy's artifact.root", artifact)
    for group in (swept.verified, swept.proposals):
        if len({x.artifact for x in group}) != len(group) or len(group) > MAX_FILES:
            raise _refused("an artifact is there twice", "account.json")
    return account


def _artifact(folder: Path, r: TargetResult, artifact_root: str) -> Mapping[str, str]:
    """The artifact's texts, by their paths in it, as this release renders them."""
    if r.artifact != f"{artifact_root}/{r.target.name}" or isinstance(r.target, TritonTarget):
        raise _refused("an artifact at another place than the policy's artifact.root", r.artifact)
    at = folder
    for part in PurePosixPath(r.artifact).parts:
        at = at / part
        if part in ("", ".", "..") or at.is_symlink() or not at.is_dir():
            raise _refused("the artifact is no plain folder", r.artifact)
    scratch = Path(tempfile.mkdtemp(prefix="kernelopt-bundle-"))
    try:
        committed = read_artifact(at, scratch)
        texts = _rendered(committed, r, artifact_root)
    except (Modified, OtherRelease, TypeError, ValueError, KeyError) as e:
        raise _refused(str(e), r.artifact) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for name in sorted(committed.texts.keys() | texts.keys()):
        if committed.texts.get(name) != texts.get(name):
            raise _refused(f"{name}: not what this release writes for these kernels", r.artifact)
    return texts


def _rendered(committed: Committed, r: TargetResult, artifact_root: str) -> dict[str, str]:
    """Raises Modified where the artifact and the report tell of different pieces."""
    if (committed.target, committed.class_name) != (r.target.name, r.target.entry):
        raise Modified("manifest.json", "another target than the report's")
    example, t = committed.example, r.target
    if example is not None and (example.path, example.inputs, example.init) != (t.path, t.inputs, t.init):
        raise Modified("manifest.json", "an example of another target than the report's")
    pieces = [t.candidate for t in adopted(r)]
    options: dict[str, Any] = {}
    for piece in pieces:
        options |= piece.options if isinstance(piece, OptionsCandidate) else {}
    if options != dict(committed.options):
        raise Modified("manifest.json", "other compiler options than the report's")
    kernels = {p.run_hash: p for p in pieces if isinstance(p, KernelCandidate)}
    if kernels.keys() != {entry["hash"] for entry in committed.entries}:
        raise Modified("manifest.json", "other kernels than the report's")
    manifest = json.loads(committed.texts["manifest.json"])
    texts = dict(committed.texts)
    techniques = []
    for entry in committed.entries:
        candidate = kernels[entry["hash"]]
        if json.loads(json.dumps(candidate.plan.to_json())) != entry["plan"]:
            raise Modified("manifest.json", f"another plan of {entry['kernel']} than the report's")
        _plain(entry["replaces"])
        techniques.append(candidate.technique)
        texts[entry["kernel"]] = kernel_text(candidate, entry["replaces"], entry["evidence"])
    _plain(techniques, list(committed.environment.values()))
    # Whatever else the manifest says of itself is data in our own spelling.
    texts["manifest.json"] = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False) + "\n"
    texts["README.md"] = readme_text(manifest, techniques, f"{PurePosixPath(artifact_root).name}.{r.target.name}")
    return texts


def _plain(*groups: Sequence[Any]) -> None:
    """Raises Modified for a word that would leave its line in a comment or a page."""
    for value in (v for group in groups for v in group):
        if isinstance(value, str) and not _PLAIN.fullmatch(value):
            raise Modified("manifest.json", f"{value!r:.60} is no plain word")


def _no_others(folder: Path, artifacts: Mapping[str, Any], edits: Mapping[str, bytes]) -> None:
    """Raises InputError for a file of an artifact, or an edit, that belongs to no faster target."""
    known = tuple(f"{_FOLDER}/{artifact}/" for artifact in artifacts)
    for path in (p for below in (_FOLDER, _EDITS) for p in (folder / below).rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if not path.is_dir() and not relative.startswith(known) and relative not in edits:
            raise _refused("a file of no faster target", relative)
