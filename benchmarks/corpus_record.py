"""The corpus through gates 1 and 2 on this machine, as a record.

    python -m benchmarks.corpus_record OUT [OPTIONS OF kernelopt verify]

Writes OUT/corpus_<lane>_<date>.json: command, commit, gpu, driver, versions, date, and `report`, which is what
`kernelopt verify --corpus tests/adversarial --json` printed. Exits as that does: 1 where an adversary escaped or an
honest candidate was refused; the record is written all the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.records import head

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ("verify", "--corpus", "tests/adversarial", "--json")


def record(report: dict[str, Any], options: list[str]) -> dict[str, Any]:
    """The record of one run's JSON. The GPU's own number is left out: it names a machine."""
    gpu = report["gpu"]
    kept = None if gpu is None else {k: v for k, v in gpu.items() if k != "uuid"}
    begin = head(" ".join(["kernelopt", *COMMAND, *options]), "cpu" if gpu is None else "cuda")
    versions = {**begin["versions"], "torch": report["torch"], "triton": report["triton"]}
    return {**begin, "versions": versions, "report": {**report, "gpu": kept}}


def main(out: Path, options: list[str]) -> int:
    done = subprocess.run([sys.executable, "-m", "kernelopt_bot", *COMMAND, *options], cwd=ROOT, check=False,
                          stdout=subprocess.PIPE, text=True)
    if not done.stdout.strip():
        return done.returncode
    made = record(json.loads(done.stdout), options)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"corpus_{'cuda' if made['gpu'] else 'interpret'}_{made['date']}.json"
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{path.name}: {made['report']['seconds']} s, {made['report']['summary'].splitlines()[-1]}")
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
