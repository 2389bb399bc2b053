"""The targets that a change affects: those whose files, or anything they import in the repository, differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from kernelopt_bot.config import FILES, KernelConfig, TargetConfig, Traced
from kernelopt_bot.config_sources import Reader, joined, mapping_reader, target_files
from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.discover import ENTRY, HOW_TO_ADD, INPUTS, Broken, Finder, place, unique
from kernelopt_bot.targets.git import Repository, shown
from kernelopt_bot.targets.marker import OFF, opts_out
from kernelopt_bot.targets.source import CommitSource
from kernelopt_bot.targets.target import Affected, Target
from kernelopt_bot.targets.triton_found import triton_targets, without_marker

Listed = TargetConfig | KernelConfig
"""An entry of the configuration."""
LISTED = 10
"""So many unaffected targets are named one by one; of more, only how many there are."""


def config_at(repository: Repository, commit: str) -> Traced:
    """The configuration as committed; all defaults if there is none. Raises InputError."""
    reader = _reader(repository, commit)
    return joined(reader, reader)


def config_for(repository: Repository, policy: str, head: str) -> Traced:
    """The policy as committed at `policy` (the default branch, which the author of a pull request cannot change) with
    the `targets:` and `kernels:` of `head`. Raises InputError: unknown revision, shallow clone without it, a faulty
    configuration."""
    return joined(_reader(repository, repository.commit(policy)), _reader(repository, repository.commit(head)))


def _reader(repository: Repository, commit: str) -> Reader:
    """Plain files only: no link of a commit is followed."""
    names = {PurePosixPath(file).name for file in FILES}
    found = [e for e in repository.entries(commit)
             if e.mode in ("100644", "100755") and PurePosixPath(e.path).name in names]
    return mapping_reader({e.path: content for e, content in repository.blobs(found)})


def affected(repository: Repository, base: str, head: str, traced: Traced) -> Affected:
    """Targets at `head` that the change since `base` (their merge base, where it is at hand) affects.

    `traced` is the configuration at `head`. Raises InputError: unknown revision, shallow clone without it, a configured
    target that is not there. A file that does not parse is passed over with the reason.
    """
    head_sha, base_sha = repository.commit(head), repository.commit(base)
    start = repository.merge_base(base_sha, head_sha) or base_sha
    changed = repository.changed(start, head_sha)
    source = CommitSource(repository, head_sha)
    finder = Finder(source)
    deleted = [p for p in changed if p.endswith(".py") and not source.is_file(p)]
    # What a deleted file's importers were: only a source in which it still exists tells.
    before = Finder(CommitSource(repository, head_sha, deleted)) if deleted else finder
    listed = _targets_before(repository, start) if set(target_files(traced.config)) & set(changed) else None
    skipped: dict[str, str] = {}
    targets: list[Target] = []
    unaffected: list[str] = []
    known: set[str] = set()
    for target, wanted in unique_pairs(_all(finder, source, traced, skipped)):
        closure = finder.closure_of(target)
        touched = {*closure.files, *before.closure_of(target).files} & set(changed)
        known.update(closure.files)
        if touched or (wanted is not None and listed is not None and wanted not in listed):
            if opts_out(source.read(target.path).decode(errors="replace")):
                skipped[target.path] = f"it opts out with `{OFF}`"
                continue
            targets.append(target)
            skipped |= {f: f"does not parse, so what it imports is unknown: {why}" for f, why in closure.broken}
        else:
            unaffected.append(target.name)
    artifacts = f"{traced.config.artifact.root}/"
    for path in changed:
        if path.endswith(".py") and source.is_file(path) and path not in known and not path.startswith(artifacts):
            skipped |= _without_target(finder, path)
    passed_over = [(shown(path), reason) for path, reason in skipped.items()]
    return Affected(base_sha, head_sha, tuple(map(shown, changed)), tuple(targets),
                    (*passed_over, *_unaffected(unaffected)))


def everything(repository: Repository, head: str, traced: Traced) -> Affected:
    """All targets at `head`, for sweeps and for commands that name some. Raises InputError as `affected`."""
    head_sha = repository.commit(head)
    source = CommitSource(repository, head_sha)
    skipped: dict[str, str] = {}
    targets = []
    for target, _ in unique_pairs(_all(Finder(source), source, traced, skipped)):
        if opts_out(source.read(target.path).decode(errors="replace")):
            skipped[target.path] = f"it opts out with `{OFF}`"
        else:
            targets.append(target)
    return Affected(head_sha, head_sha, (), tuple(targets), tuple((shown(p), why) for p, why in skipped.items()))


def unique_pairs(found: list[tuple[Target, Listed | None]]) -> Iterator[tuple[Target, Listed | None]]:
    """The targets with unique names, each with the configuration that it comes from."""
    wanted = {(t.path, t.entry): c for t, c in found}
    return ((t, wanted[t.path, t.entry]) for t in unique(t for t, _ in found))


def _all(finder: Finder, source: CommitSource, traced: Traced, skipped: dict[str, str]
         ) -> list[tuple[Target, Listed | None]]:
    found: dict[tuple[str, str], tuple[Target, Listed | None]] = {}
    for index, wanted in enumerate(traced.config.targets):
        try:
            target = finder.by_config(wanted, place(traced, index))
        except Broken as error:
            skipped[error.where] = error.what.removeprefix(f"{error.where} ")
            continue
        if (target.path, target.entry) in found:
            raise InputError(f"{target.entry} in {target.path} is listed twice", where=place(traced, index),
                             fix="keep one of the two")
        found[target.path, target.entry] = target, wanted
    artifacts = f"{traced.config.artifact.root}/"
    own = [path for path in source.paths if path.endswith(".py") and not path.startswith(artifacts)]
    for path in own:
        # Most files are no targets, and the name tells faster than a parser does.
        if not source.mentions(path, INPUTS):
            continue
        candidate = finder.by_convention(path) if path.isprintable() else ""
        if isinstance(candidate, Target):
            found.setdefault((path, ENTRY), (candidate, None))
    return [*found.values(), *triton_targets(finder, own, traced, skipped)]


def _targets_before(repository: Repository, commit: str) -> tuple[Listed, ...]:
    try:
        config = config_at(repository, commit).config
        return *config.targets, *config.kernels
    except InputError:
        # It was not valid then, so nothing was configured by it.
        return ()


def _without_target(finder: Finder, path: str) -> dict[str, str]:
    if not path.isprintable():
        return {path: "its name is not printable UTF-8"}
    if finder.trees.get(path) is None:
        return {path: f"does not parse: {finder.trees.broken[path]}"}
    models = finder.symbols.models(path)
    if not models:
        return {path: why} if (why := without_marker(finder, path)) else {}
    answer = finder.by_convention(path)
    if finder.symbols.binds(path, INPUTS) and isinstance(answer, str):
        return {path: answer}
    return {path: f"no example inputs for {', '.join(models)}: {HOW_TO_ADD}"}


def _unaffected(names: list[str]) -> list[tuple[str, str]]:
    reason = "nothing that it imports changed"
    if len(names) <= LISTED:
        return [(name, reason) for name in names]
    return [(f"{len(names)} other targets", "nothing that they import changed")]
