"""Which files may be published: the bundle comes from a job that executed other people's code."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from kernelopt_bot.errors import InputError, UserError

MAX_FILES = 500
MAX_FILE_BYTES = 1 << 20
MAX_BYTES = 8 << 20


def read_folder(root: Path, folder: str) -> dict[str, bytes]:
    """The regular files below `root/folder`, by path relative to `root`.

    Raises InputError for links, special files, a folder outside `root`, and what exceeds the limits of this module.
    """
    check_path(folder)
    files: dict[str, bytes] = {}
    at = root
    for part in PurePosixPath(folder).parts:
        at = at / part
        if at.is_symlink() or not at.is_dir():
            raise _rejected("The artifact is no plain folder.", folder)
    for here, folders, names in os.walk(at):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in (*folders, *sorted(names)):
            path = Path(here) / name
            relative = path.relative_to(root).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise _rejected("The artifact holds something that is no plain file.", relative)
            if path.stat().st_size > MAX_FILE_BYTES or len(files) >= MAX_FILES:
                raise _rejected(f"The artifact is larger than {MAX_FILES} files of 1 MiB.", relative)
            files[relative] = path.read_bytes()
    check_files(files)
    return files


def check_files(files: Mapping[str, bytes]) -> None:
    """Raises InputError for paths outside the repository, git's and GitHub's own files, and too much content."""
    for path in files:
        check_path(path)
    folders = {str(p) for path in files for p in PurePosixPath(path).parents}
    if clash := next((p for p in files if p in folders), ""):
        raise _rejected("A path is both a file and a folder.", clash)
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise _rejected(f"There is more to publish than {MAX_FILES} files or {MAX_BYTES >> 20} MiB.", "")


def check_removed(paths: Iterable[str], artifact_root: str) -> None:
    """Raises InputError for a path that is not below the artifact root, or may not be published at all."""
    for path in paths:
        check_path(path)
        if not path.startswith(f"{artifact_root}/"):
            raise _rejected("This file is not below `artifact.root` and may not be removed.", path)


def check_call_sites(files: Mapping[str, bytes], permitted: Collection[str], artifact_root: str) -> None:
    """Raises InputError for a call site that no target's `wire` names, one inside the artifacts, and too much text."""
    for path, content in files.items():
        check_path(path)
        if path not in permitted or not path.endswith(".py") or path.startswith(f"{artifact_root}/"):
            raise _rejected("No target names this file as its call site.", path)
        if len(content) > MAX_FILE_BYTES:
            raise _rejected("The call site's file is larger than 1 MiB.", path)


def kernels_named(manifest: str, artifact: str) -> set[str]:
    """Paths of the kernels that a committed artifact's manifest names; none where it says nothing that can be read."""
    try:
        return {f"{artifact}/{run['kernel']}" for run in json.loads(manifest)["runs"]}
    except (KeyError, TypeError, ValueError, RecursionError):
        return set()


def not_ours(folder: str) -> UserError:
    """For a folder without a manifest where an artifact must go: what is in it would be written over."""
    return UserError("A folder that KernelOPT did not write stands where an artifact must go.", where=folder,
                     fix="give the target another `name`, or choose another `artifact.root` in the configuration")


def check_path(path: str) -> None:
    """Raises InputError unless `path` is a plain relative POSIX path outside `.git` and `.github`."""
    parts = path.split("/")
    plain = path.isprintable() and "\\" not in path and ":" not in path and len(path) < 1000
    # Other file systems fold case, and drop dots and blanks at the end of a name: `.GIT. ` is `.git` there.
    folded = {part.casefold().rstrip(". ") for part in parts}
    if not plain or "" in folded or folded & {".git", ".github", "git~1"}:
        raise _rejected("This path may not be published.", path)


def _rejected(what: str, where: str) -> UserError:
    return InputError(
        what, where=repr(where)[:200], fix="publish only what `kernelopt run` wrote; nothing was published"
    )
