"""`kernelopt optimize` on every example, each in a process of its own, with a record a target.

    python benchmarks/optimize_examples.py OUT [NAME...] [-- OPTIONS OF kernelopt optimize]

Writes OUT/optimize_<name>_<gpu>_<date>.json, a `benchmarks.records.Record`. A target whose search fails or is cut still
has its record, with what its report says.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.records import ROOT, Record, made, report_of, today
from kernelopt_bot.bench.machine import PACKAGE, commit


def optimise(name: str, options: list[str], notes: list[str]) -> Record | None:
    """The record of one example; None, with its output above, if there is no report."""
    path = f"examples/{name}.py"
    report = report_of(path, *options)
    if report is None:
        return None
    command = " ".join(["kernelopt", "optimize", path, *options])
    return made(report, command=command, commit=commit(PACKAGE), notes=notes, date=today())


def main(arguments: list[str]) -> int:
    options = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    names = arguments[1:arguments.index("--")] if "--" in arguments else arguments[1:]
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    for name in names or sorted(p.stem for p in (ROOT / "examples").glob("*.py")):
        record = optimise(name, options, [])
        if record is None:
            continue
        device = "h200" if "H200" in record.gpu else (record.gpu or "cpu").lower().replace(" ", "-")
        path = out / f"optimize_{name}_{device}_{record.date}.json"
        path.write_text(json.dumps(asdict(record), indent=1) + "\n")
        print(path, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
