"""The source text to look through: a commit of a repository, or a folder as it is. Nothing is executed."""

from __future__ import annotations

import ast
import platform
import warnings
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Protocol

from kernelopt_bot.targets.git import Repository

LIMIT = 2 * 1024 * 1024
"""Largest Python file that is looked at, in bytes; what is longer is data."""


class Source(Protocol):
    """Files by POSIX path relative to a root."""

    def is_file(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def read(self, path: str) -> bytes:
        """Raises KeyError if there is no such file."""


class CommitSource:
    """The files of one commit, read from git's objects and not from the work tree."""

    def __init__(self, repository: Repository, commit: str, ghosts: Iterable[str] = ()) -> None:
        """`ghosts`: paths taken to exist (empty), such as deleted files that something may still import."""
        entries = {e.path: e for e in repository.entries(commit) if e.mode in ("100644", "100755")}
        self._text: dict[str, bytes] = dict.fromkeys(ghosts, b"")
        readable = [e for e in entries.values() if e.path.endswith((".py", ".yml")) and e.size <= LIMIT]
        self._text |= {entry.path: content for entry, content in repository.blobs(readable)}
        self.paths = tuple(sorted(entries.keys() | self._text.keys()))
        self._files = frozenset(self.paths)
        self._folders = frozenset(str(p) for path in self.paths for p in PurePosixPath(path).parents)

    def is_file(self, path: str) -> bool:
        return path in self._files

    def is_folder(self, path: str) -> bool:
        return path in self._folders

    def read(self, path: str) -> bytes:
        return self._text[path]

    def mentions(self, path: str, word: str) -> bool:
        """Whether the text of a file has the word at all."""
        return word.encode() in self._text.get(path, b"")


class FolderSource:
    """The files below a folder, looked up when asked for. A path that leads out of the folder is not there."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def _inside(self, path: str) -> Path | None:
        full = (self.root / path).resolve()
        return full if full.is_relative_to(self.root) else None

    def is_file(self, path: str) -> bool:
        full = self._inside(path)
        return full is not None and full.is_file()

    def is_folder(self, path: str) -> bool:
        full = self._inside(path)
        return full is not None and full.is_dir()

    def read(self, path: str) -> bytes:
        full = self._inside(path)
        if full is None or not full.is_file():
            raise KeyError(path)
        with full.open("rb") as file:
            return file.read(LIMIT + 1)


class Trees:
    """Syntax trees of a source, parsed once. Files that do not parse are remembered with the reason."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.broken: dict[str, str] = {}
        self._trees: dict[str, ast.Module | None] = {}

    def get(self, path: str) -> ast.Module | None:
        """None if the file is missing or does not parse; `broken[path]` then has the reason."""
        if path not in self._trees:
            self._trees[path] = self._parse(path)
        return self._trees[path]

    def _parse(self, path: str) -> ast.Module | None:
        try:
            text = self.source.read(path)
        except (KeyError, OSError):
            self.broken[path] = "cannot be read" if self.source.is_file(path) else "does not exist"
            return None
        if len(text) > LIMIT:
            self.broken[path] = f"longer than {LIMIT // 1024 // 1024} MiB"
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except SyntaxError as error:
            self.broken[path] = (f"line {error.lineno or 1}: {error.msg} "
                                 f"(read as Python {'.'.join(platform.python_version_tuple()[:2])})")
        except (ValueError, RecursionError, MemoryError) as error:
            self.broken[path] = f"does not parse: {str(error) or type(error).__name__}"
        return None
