#!/usr/bin/env python3
"""Writes the released image into `action.yml`, as the default of the input `image`.

    tools/pin_image.py ghcr.io/OWNER/REPOSITORY/worker@sha256:DIGEST
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ACTION = Path(__file__).resolve().parents[1] / "action.yml"
_IMAGE = re.compile(r"[a-z0-9._/-]+@sha256:[0-9a-f]{64}")
_DEFAULT = re.compile(r'(\n  image:\n    description: [^\n]*\n    default: )[^\n]*\n')


def main(arguments: list[str], action: Path = ACTION) -> int:
    if len(arguments) != 1 or not _IMAGE.fullmatch(arguments[0]):
        print("give one image by its digest: NAME@sha256:DIGEST", file=sys.stderr)
        return 2
    text, count = _DEFAULT.subn(lambda m: f'{m[1]}"{arguments[0]}"\n', action.read_text(encoding="utf-8"))
    if count != 1:
        print("action.yml has no input `image` with a description and a default", file=sys.stderr)
        return 1
    action.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
