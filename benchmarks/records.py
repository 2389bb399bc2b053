"""The committed records of runs: `results/optimize_<target>_<gpu>_<date>.json`, one target a file, and a demo's."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kernelopt_bot.bench.machine import environment
from kernelopt_bot.report.write import write_whole

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks" / "results"
DEMO = FOLDER / "demo_cpu_2026-11-30.json"


@dataclass(frozen=True)
class Record:
    """One run, of `kernelopt optimize` on one target or of the demo.

    `gpu` and `driver` are empty where there is none; `versions` has `kernelopt`, `python`, `torch`, `triton` and
    `cuda`; `notes` say what limits the figures; `report` is the run's report.json (docs/report.schema.json).
    """

    command: str
    commit: str
    date: str
    gpu: str
    driver: str
    versions: dict[str, str]
    notes: list[str]
    report: dict[str, Any]

    @property
    def target(self) -> dict[str, Any]:
        """The only one. Raises ValueError if there are several."""
        (target,) = self.report["targets"]
        assert isinstance(target, dict)
        return target

    def against(self, baseline: str, metric: str = "latency", cache: str = "cold") -> dict[str, Any] | None:
        """The confirmed comparison with that baseline, measured in that way; None if there is none."""
        gains = (b["gain"] for b in self.report["baselines"] if b["gain"] and b["baseline"] == baseline)
        return next((g for g in gains if (g["metric"], g["cache"]) == (metric, cache)), None)


def head(command: str, device: str) -> dict[str, Any]:
    """What every record begins with: `command`, `commit`, `gpu` and `driver` (empty for `cpu`), `versions`, `date`.

    Raises Unavailable: there is no such device.
    """
    here = environment(device)
    return {"command": command, "commit": here["commit"], "gpu": "" if device == "cpu" else here["gpu"],
            "driver": here["driver"], "versions": {k: here[k] for k in ("python", "torch", "triton")}, "date": today()}


def resumed(path: Path, head: dict[str, Any]) -> dict[str, Any] | None:
    """The record at `path`, begun under the same circumstances (`head`, whatever its command and date); None if there
    is none. Raises ClickException for one of others, which must not be mixed and is not overwritten."""
    if not path.exists():
        return None
    old: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if other := [k for k, v in head.items() if k not in ("command", "date") and old.get(k) != v]:
        raise click.ClickException(f"{path} is a record of another {', '.join(other)}: name another file")
    return old


def save(path: Path, record: dict[str, Any]) -> None:
    """At once, so that whatever ends the process leaves a whole record."""
    write_whole(path, (json.dumps(record, indent=1) + "\n").encode())


def report_of(target: str, *options: str) -> dict[str, Any] | None:
    """The report.json of `kernelopt optimize TARGET` in a process of its own, whose output is seen; None if it wrote
    none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "kernelopt_bot", "optimize", target, *options, "--output", folder]
        subprocess.run(command, cwd=ROOT, check=False)
        path = Path(folder) / "report.json"
        report: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return report


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


REMOVED = ("Removed from the report: the path of the interpreter, the build of the operating system's kernel and the "
           "GPU's UUID.")
_FOLDERS = re.compile(r"(?<![\w.])/(?:home|root|opt|tmp|work)/[^\s\"']*")
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]*")


def made(report: dict[str, Any], *, command: str, commit: str, date: str, notes: list[str]) -> Record:
    """The record of one target's report, without what names the machine that it ran on. Raises KeyError if the search
    ended before the versions were known."""
    (environment,) = report["environment"].values()
    gpu = environment.get("gpu") or {}
    versions = {k: str(environment[k]) for k in ("kernelopt", "python", "torch", "triton", "cuda")}
    cut = [f"Cut short: {lever['lever']}: {lever['reason']}" for lever in report["levers"]
           if "wall time" in lever["reason"] or "budget" in lever["reason"]]
    return Record(command, commit, date, str(gpu.get("name", "")), str(gpu.get("driver", "")), versions,
                  [*notes, *cut, REMOVED], _anonymous(report))


def _anonymous(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _anonymous(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_anonymous(v) for v in value]
    if not isinstance(value, str):
        return value
    if key == "uuid" and value:
        return "removed"
    if key == "platform":
        return value.split("-")[0]
    if key == "executable":
        return Path(value).name
    return _UUID.sub("GPU", _FOLDERS.sub("(path)", value))


def load(path: Path) -> Record:
    """Raises TypeError if a field is missing or unknown."""
    return Record(**json.loads(path.read_text(encoding="utf-8")))


def paths() -> list[Path]:
    """The records of single targets, by name."""
    return sorted(FOLDER.glob("optimize_*.json"))
