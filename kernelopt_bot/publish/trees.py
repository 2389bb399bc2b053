"""Commits, folders and files read by REST, as data that nobody vouches for."""

from __future__ import annotations

import base64
import binascii
from pathlib import PurePosixPath
from typing import Any

from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.publish.rest import Json, Rest

MOST_FILES = 300
"""GitHub lists no more of a comparison; a longer one counts as unread.
https://docs.github.com/en/rest/commits/commits#compare-two-commits"""
LONGEST = 1 << 20
"""Bytes of a file, where nothing else is said."""
PLAIN = ("100644", "100755")


def tree(rest: Rest, sha: str) -> dict[str, Json]:
    """The entries of one folder, by name. `sha` is a tree's or a commit's. Raises UserError."""
    answer = rest.request("GET", f"git/trees/{sha}", doing="reading a folder")
    return {str(entry["path"]): entry for entry in answer["tree"]}


def entry_at(rest: Rest, commit: str, path: str, known: dict[str, dict[str, Json]] | None = None) -> Json | None:
    """The entry of `path` at `commit`, a file's or a folder's; None if there is none. `known`: folders read before, by
    their SHA. Raises UserError."""
    known = {} if known is None else known
    sha, entry = commit, None
    for part in PurePosixPath(path).parts:
        if entry is not None and entry["type"] != "tree":
            return None
        if sha not in known:
            known[sha] = tree(rest, sha)
        entry = known[sha].get(part)
        if entry is None:
            return None
        sha = str(entry["sha"])
    return entry


def tree_at(rest: Rest, commit: str, folder: str) -> dict[str, Json]:
    """What is not a folder below `folder` at `commit`, by its path in it: `mode`, `sha`, `size`. Empty where there is
    no such folder. Raises UserError, also where GitHub left a part out."""
    entry = entry_at(rest, commit, folder)
    if entry is None or entry["type"] != "tree":
        return {}
    answer = rest.request("GET", f"git/trees/{entry['sha']}", query={"recursive": "1"}, doing="reading a folder")
    if answer.get("truncated"):
        raise UserError("the folder is too large for GitHub's answer", where=folder, fix="make it smaller")
    return {str(e["path"]): e for e in answer["tree"] if e["type"] != "tree"}


def blob(rest: Rest, sha: str, limit: int = LONGEST) -> bytes:
    """At most `limit` bytes of it. Raises UserError."""
    answer = rest.request("GET", f"git/blobs/{sha}", doing="reading a file")
    try:
        return base64.b64decode(answer["content"])[:limit]
    except binascii.Error:
        raise InputError("GitHub's answer holds no file", where=sha, fix="run again") from None


def comparison(rest: Rest, base: str, head: str) -> Any:
    """Of two commits, from their merge base on. Raises UserError."""
    return rest.request("GET", f"compare/{base}...{head}", doing="comparing two commits")


def files_between(rest: Rest, base: str, head: str) -> list[Json] | None:
    """The files that differ; None where GitHub may have left some out. Raises UserError."""
    files = comparison(rest, base, head)["files"]
    return files if len(files) < MOST_FILES else None
