"""What is kept on this machine from run to run: below the user's cache folder, and written by our own code only."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    return Path(platformdirs.user_cache_dir("kernelopt-bot"))
