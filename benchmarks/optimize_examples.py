"""`kernelopt optimize` on every example, each in a process of its own, with a record a target.

    python benchmarks/optimize_examples.py OUT [NAME...] [-- OPTIONS OF kernelopt optimize]

Writes OUT/optimize_<name>_<gpu>_<date>.json, a `benchmarks.records.Record`. A target whose search fails or is cut still
has its record, with what its report says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.records import Record, made, today  # noqa: E402
from kernelopt_bot.bench.machine import PACKAGE, commit  # noqa: E402


def optimise(name: str, options: list[str], notes: list[str]) -> Record | None:
    """The record of one example; None, with its output above, if there is no report."""
    command = ["kernelopt", "optimize", f"examples/{name}.py", *options]
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "kernelopt_bot", *command[1:], "--output", folder]
        subprocess.run(run, cwd=ROOT, check=False)
        path = Path(folder) / "report.json"
        if not path.exists():
            return None
        report = json.loads(path.read_text())
    return made(report, command=" ".join(command), commit=commit(PACKAGE), notes=notes, date=today())


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
