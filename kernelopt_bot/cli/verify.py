"""`kernelopt verify`: the gates over a committed artifact, or over a corpus of adversaries and honest candidates."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

import click

from kernelopt_bot import config
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError
from kernelopt_bot.gates import corpus
from kernelopt_bot.process import redact
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.run import device_of, interpreter_of
from kernelopt_bot.search.verify import verify
from kernelopt_bot.targets.discover import by_hand, by_name

COMPILERS = 4
"""Kernel workers that compile ahead of the checks, at most; and no more than half of the processors."""


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
    started = time.monotonic()
    try:
        with contextlib.ExitStack() as workers:
            count = max(1, min(COMPILERS, len(os.sched_getaffinity(0)) // 2))
            compilers = [
                workers.enter_context(Worker("kernel", python=python, jail=jail, scratch=scratch / f"compiler{i}"))
                for i in range(count)]
            checker = workers.enter_context(Worker(
                "kernel", python=python, jail=jail, scratch=scratch / "checker", device=device, interpret=not gpu))
            machine = checker.call("hello", {}, timeout=120)
            facts = machine["gpu"] if gpu else None
            gates = settings.gates
            runner = corpus.Runner(
                compilers, checker, "cuda" if gpu else "interpret", secrets.token_hex(32),
                {"m": gates.m, "k": gates.k, "m_half": gates.m_half},
                arch=facts["capability"][0] * 10 + facts["capability"][1] if facts else 90,
                multiprocessors=facts["multiprocessors"] if facts else corpus.MULTIPROCESSORS,
                budget_s=5.0 if gpu else 60.0)
            outcomes = []
            for outcome in runner.run(cases):
                outcomes.append(outcome)
                if not as_json:
                    click.echo(show(outcome))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = round(time.monotonic() - started, 1)
    last, well = corpus.summary(outcomes)
    if as_json:
        rows = [o.to_json() for o in outcomes]
        said = {"schema": 1, "gpu": facts, "torch": machine["torch"], "triton": machine["triton"], "precision": dict(
            runner.precision), "seconds": seconds, "cases": rows, "summary": last}
        click.echo(redact(json.dumps(said, indent=2)))
    else:
        click.echo(last)
    return 0 if well else 1


def run_artifact(path: Path, settings: Config, root: Path, target: str, *, as_json: bool) -> int:
    """0 if the artifact is verified, else 1. Raises UserError."""
    with shown() as progress:
        outcome = verify(path, lambda name: by_hand(target, root=root)[1] if target else by_name(name, root),
                         config=settings, root=root.resolve(), progress=progress)
    if as_json:
        click.echo(redact(json.dumps({"schema": 1, "path": str(path), **outcome.to_json()}, indent=2)))
    else:
        for what, verdict in outcome.verdicts:
            reason = f": {' '.join(verdict.reason.split())}" if verdict.reason else ""
            click.echo(redact(f"{what}: {verdict.gate} gate: {verdict.status}{reason}"))
        click.echo(redact(f"{outcome.state}: {outcome.reason}" if outcome.reason else outcome.state))
    return 0 if outcome.state == "verified" else 1


@click.command("verify")
@click.argument("path", type=click.Path(path_type=Path, file_okay=False, exists=True), required=False)
@click.option("--corpus", "folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=None,
              help="Folder of a corpus: candidates that must be refused, and honest ones that must pass.")
@click.option("--target", default="", metavar="PATH[:CLASS]",
              help="The model that the artifact is for, where its name does not say so.")
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), default=Path("."),
              help="Folder with .kernelopt.yml. Default is the current one.")
@click.option("--device", default="", help="auto, cpu, cuda or cuda:N, instead of the configured one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def command(path: Path | None, folder: Path | None, target: str, root: Path, device: str, as_json: bool) -> int:
    """Run the gates again over the committed artifact PATH, or over a corpus.

    Nothing of an artifact is executed unless it is what this release would have written. Exits with 0 if it is
    verified (or the gates hold), else with 1: modified, stale, regressed, failed or not measured.
    """
    if (path is None) == (folder is None):
        raise InputError("give either the folder of an artifact or --corpus", fix="run `kernelopt verify --help`")
    settings = config.load(root)
    if device:
        try:
            settings = Config.model_validate({**settings.model_dump(), "device": device})
        except ValueError:
            raise InputError(f"no such device: {device[:40]!r}", where="--device",
                             fix="give auto, cpu, cuda or cuda:N") from None
    if folder is not None:
        return run_corpus(folder, settings, root, as_json=as_json)
    assert path is not None
    return run_artifact(path, settings, root, target, as_json=as_json)
