"""`kernelopt verify`: the gates over a corpus of adversaries and honest candidates."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from pathlib import Path

import click

from kernelopt_bot import config
from kernelopt_bot.config import Config
from kernelopt_bot.gates import corpus
from kernelopt_bot.process import redact
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.run import device_of, interpreter_of


def show(outcome: corpus.Outcome) -> str:
    """One line."""
    mark = "skipped" if outcome.skipped else "ok" if outcome.right else "WRONG"
    note = f" [{outcome.note}]" if outcome.note else ""
    reason = " ".join(outcome.reason.split())[:160]
    return redact(f"{mark:7} {outcome.case.name}: expected {outcome.case.expect}, got {outcome.got}{note}: {reason}")


def run_corpus(folder: Path, settings: Config, root: Path, *, as_json: bool) -> int:
    """0 if no adversary passes and every honest candidate does, else 1. Raises InputError, Unavailable."""
    cases = corpus.load(folder)
    device, lane = device_of(settings)
    python = interpreter_of(settings, root)
    jail, _ = probe.select(settings.sandbox, python=python, device=device)
    scratch = Path(tempfile.mkdtemp(prefix="kernelopt-corpus-"))
    gpu = lane == "cuda"
    try:
        with (
            Worker("kernel", python=python, jail=jail, scratch=scratch / "compiler") as compiler,
            Worker("kernel", python=python, jail=jail, scratch=scratch / "checker", device=device,
                   interpret=not gpu) as checker,
        ):
            facts = checker.call("hello", {}, timeout=120)["gpu"] if gpu else None
            gates = settings.gates
            runner = corpus.Runner(
                compiler, checker, "cuda" if gpu else "interpret", secrets.token_hex(32),
                {"m": gates.m, "k": gates.k, "m_half": gates.m_half},
                arch=facts["capability"][0] * 10 + facts["capability"][1] if facts else 90,
                multiprocessors=facts["multiprocessors"] if facts else corpus.MULTIPROCESSORS)
            outcomes = []
            for outcome in map(runner.run, cases):
                outcomes.append(outcome)
                if not as_json:
                    click.echo(show(outcome))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    last, well = corpus.summary(outcomes)
    if as_json:
        rows = [o.to_json() for o in outcomes]
        click.echo(redact(json.dumps({"schema": 1, "gpu": facts, "cases": rows, "summary": last}, indent=2)))
    else:
        click.echo(last)
    return 0 if well else 1


@click.command("verify")
@click.option("--corpus", "folder", type=click.Path(path_type=Path, file_okay=False, exists=True), required=True,
              help="Folder of a corpus: candidates that must be refused, and honest ones that must pass.")
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), default=Path("."),
              help="Folder with .kernelopt.yml. Default is the current one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def command(folder: Path, root: Path, as_json: bool) -> int:
    """Run the gates over a corpus. Exits with 0 if they hold, else with 1."""
    return run_corpus(folder, config.load(root), root, as_json=as_json)
