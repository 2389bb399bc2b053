"""Which release wrote a `_runtime.py`: SHA-256 of the runtime's text by release.

`releases.json` holds the released ones; `tools/release.py` adds an entry when a release is made, and never changes one.
This release's own is computed from its modules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from kernelopt_bot import __version__
from kernelopt_bot.compiler.bundle import runtime_text

TABLE = Path(__file__).with_suffix(".json")


def digest(text: str) -> str:
    """SHA-256 of the runtime's UTF-8 text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_table(path: Path = TABLE) -> dict[str, str]:
    """Release -> digest of its runtime, of the earlier releases. Raises ValueError if the table is not one."""
    table = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(table, dict) or not all(isinstance(v, str) and len(v) == 64 for v in table.values()):
        raise ValueError(f"{path.name} does not map releases to digests")
    return {str(k): v for k, v in table.items()}


def release_of(text: str, table: Mapping[str, str]) -> str:
    """The release whose runtime has this very text: this one, or one of `table`; '' for none."""
    found = digest(text)
    if found == digest(runtime_text()):
        return __version__
    return next((release for release, known in table.items() if known == found), "")
