#!/usr/bin/env python3
"""Writes the digest of this release's artifact runtime into `kernelopt_bot/compiler/releases.json`.

    tools/release.py          add this version; nothing to do if it is there with the same digest
    tools/release.py --check  1 if it is not there

A version that is there with another digest is an error: what was released does not change. Raise the version instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernelopt_bot import __version__
from kernelopt_bot.compiler.bundle import runtime_text
from kernelopt_bot.compiler.releases import TABLE, digest, read_table


def main(arguments: list[str], table: Path = TABLE) -> int:
    known, own = read_table(table), digest(runtime_text())
    if known.get(__version__, own) != own:
        print(f"release {__version__} has another runtime in {table.name}: raise the version", file=sys.stderr)
        return 1
    if "--check" in arguments:
        if __version__ not in known:
            print(f"release {__version__} is not in {table.name}: run tools/release.py", file=sys.stderr)
        return int(__version__ not in known)
    table.write_text(json.dumps(known | {__version__: own}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
