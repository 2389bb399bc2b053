"""An edit in the bundle between execute and publish, attacked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Job
from kernelopt_bot.publish import bundle
from kernelopt_bot.report.build import build
from kernelopt_bot.report.facts import faster
from tests.publish.kernels import PATH, edit, result, run_of

SHA = "b" * 40
JOB = Job("pull_request", "synchronize", "acme/kernels", SHA, SHA, number=7, source_branch="faster-models")
NAME = "edits/kernels_ops_norm.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = run_of(result(), head=SHA, number=7)
    bundle.write(tmp_path / "bundle", JOB, run, build(run), tmp_path)
    return tmp_path / "bundle"


def read(folder: Path) -> bundle.Bundle:
    scratch = folder.parent / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    return bundle.read(folder, scratch, JOB, "kernelopt_kernels")


def test_it_comes_through(folder: Path) -> None:
    assert (folder / NAME).read_bytes() == edit()
    [held] = faster(read(folder).run)
    assert held.target == result().target and held.edits == {PATH: edit()}


def _report(change: Callable[[dict[str, object]], object]) -> Callable[[Path], object]:
    def attack(folder: Path) -> None:
        path = folder / "report.json"
        data = json.loads(path.read_text())
        change(data["targets"][0])
        path.write_text(json.dumps(data))

    return attack


def _link(folder: Path) -> None:
    (folder / NAME).unlink()
    (folder / NAME).symlink_to("/etc/passwd")


def _link_folder(folder: Path) -> None:
    (folder / "edits").rename(folder.parent / "elsewhere")
    (folder / "edits").symlink_to(folder.parent / "elsewhere")


def _more(name: str) -> Callable[[Path], object]:
    def attack(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")

    return attack


def _large(folder: Path) -> None:
    with (folder / NAME).open("r+b") as file:
        file.truncate(2 << 20)


@pytest.mark.parametrize("attack", [
    _link, _link_folder, _large, lambda folder: (folder / NAME).unlink(), _more("edits/other.py"),
    _more("edits/.github/workflows/x.yml"), _more("edits/kernels_ops_norm.py.d/x"),
    _report(lambda t: t.update(kind="module")), _report(lambda t: t.update(name="../up")),
    _report(lambda t: t.update(artifact="kernelopt_kernels/kernels_ops_norm")),
    _report(lambda t: t.update(stitched=[])), _report(lambda t: t.update(kind="helion"))])
def test_what_was_touched_is_refused(folder: Path, attack: Callable[[Path], object]) -> None:
    attack(folder)
    with pytest.raises(InputError):
        read(folder)
