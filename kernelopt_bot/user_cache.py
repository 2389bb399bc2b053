"""What is kept on this machine from run to run: below the user's cache folder, and written by our own code only."""

from __future__ import annotations

import hashlib
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    return Path(platformdirs.user_cache_dir("kernelopt-bot"))


def of_repository(repository: str, kind: str, ending: str, folder: Path | None = None) -> Path:
    """The file of this kind for `repository` (`owner/name`, or a folder's path); `folder`: in place of the cache's."""
    return (folder or cache_folder() / kind) / f"{hashlib.sha256(repository.encode()).hexdigest()[:24]}{ending}"
