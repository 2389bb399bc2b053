"""Which file says what: the policy from one place, the targets from another, and those of every folder under `roots`.

What a pull request says about the policy is never read: its author must not set the budget, the gates, the jail or who
may ask. Its targets are untrusted data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from kernelopt_bot.config import FILES, Config, TargetConfig, Traced, both_files, parse, parse_targets
from kernelopt_bot.errors import InputError

Reader = Callable[[str], bytes | None]
"""The content of a POSIX path relative to the root; None where there is no such file. May raise InputError."""


def joined(policy: Reader, head: Reader) -> Traced:
    """The policy of `policy` with the targets of `head`. Raises InputError for a faulty file in either.

    `Traced.file` is the policy's. With the same reader for both, it is the configuration of one commit or folder.
    """
    found = _text(policy, FILES)
    rules = parse(found[1], found[0]) if found else Traced(Config())
    return _with_targets(rules, [("", rules), *_below_roots(rules, head)]) if head is policy else listed(rules, head)


def listed(rules: Traced, head: Reader) -> Traced:
    """The policy `rules` with the targets of `head`. Raises InputError for a faulty file in `head`."""
    found = _text(head, FILES)
    own = [("", parse_targets(found[1], found[0]))] if found else []
    return _with_targets(rules, [*own, *_below_roots(rules, head)])


def _below_roots(rules: Traced, head: Reader) -> list[tuple[str, Traced]]:
    sources = []
    for root in rules.config.roots:
        own = _text(head, (f"{root}/{FILES[0]}",))
        if own:
            sources.append((root, parse_targets(own[1], own[0], alone=True)))
    return sources


def target_files(config: Config) -> tuple[str, ...]:
    """Every file that may list targets under that policy."""
    return (*FILES, *(f"{root}/{FILES[0]}" for root in config.roots))


def folder_reader(root: Path) -> Reader:
    """Reads a folder as it is. A link out of it is an error."""

    def read(path: str) -> bytes | None:
        full = root / path
        if not full.is_file():
            return None
        if not full.resolve().is_relative_to(root.resolve()):
            raise InputError("the configuration is a link that leaves the repository", where=path,
                             fix="put the file itself there")
        try:
            return full.read_bytes()
        except OSError as error:
            raise InputError("the configuration cannot be read", where=path, fix="check its permissions") from error

    return read


def mapping_reader(files: Mapping[str, bytes]) -> Reader:
    """Reads what is at hand already, such as files of a commit."""
    return files.get


def _text(reader: Reader, names: tuple[str, ...]) -> tuple[str, str] | None:
    """(name, text) of the one of `names` that is there."""
    found = [(name, content) for name in names if (content := reader(name)) is not None]
    if len(found) > 1:
        raise both_files()
    for name, content in found:
        try:
            return name, content.decode()
        except UnicodeDecodeError as error:
            raise InputError("the configuration cannot be read as UTF-8 text", where=name,
                             fix="save it as UTF-8") from error
    return None


def _with_targets(rules: Traced, sources: list[tuple[str, Traced]]) -> Traced:
    targets: list[TargetConfig] = []
    lines = {path: line for path, line in rules.lines.items() if path[0] != "targets" or len(path) == 1}
    files: dict[int, str] = {}
    for root, source in sources:
        for index, target in enumerate(source.config.targets):
            here = len(targets)
            files[here] = source.file
            lines |= {("targets", here, *path[2:]): line for path, line in source.lines.items()
                      if path[:2] == ("targets", index)}
            twice = next((i for i, t in enumerate(targets) if target.name and t.name == target.name), None)
            if twice is not None:
                raise InputError(f"the name {target.name} is given to more than one target",
                                 where=f"{source.file}:{lines[('targets', here)]}",
                                 fix=f"{files[twice]}:{lines[('targets', twice)]} has it already: choose another")
            targets.append(_below(target, root) if root else target)
    return replace(rules, config=rules.config.model_copy(update={"targets": tuple(targets)}), lines=lines, files=files)


def _below(target: TargetConfig, root: str) -> TargetConfig:
    """The target with paths that start at the repository root."""

    def place(path: str) -> str:
        return str(PurePosixPath(root) / path)

    changed = {"path": place(target.path)}
    for name in ("inputs", "init", "wire"):
        value = getattr(target, name)
        if ":" in value:
            changed[name] = place(value)
    return target.model_copy(update=changed)
