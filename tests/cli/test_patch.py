"""The patch of a run: git takes it, and what it makes is what would have been published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelopt_bot.cli.patch import NAME, edits_patch, write_patch
from kernelopt_bot.publish.files import read_folder
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.targets.git import open_repository
from tests.report import results
from tests.targets.conftest import Scratch

SERVE = "from net import Block\n\n\ndef start():\n    model = Block()\n    return model"


def test_git_applies_it(tmp_path: Path, made: tuple[RunResult, Path]) -> None:
    run, root = made
    [result] = run.results
    artifact = result.artifact
    scratch = Scratch(tmp_path / "repository")
    head = scratch.commit({"path/a serve ü.py": SERVE, f"{artifact}/manifest.json": "an older one\n"})
    wired = replace(run, results=(replace(result, target=replace(result.target, wire="path/a serve ü.py:start")),))
    path = write_patch(tmp_path, wired, root, open_repository(scratch.root), head)
    assert path == tmp_path / NAME
    scratch.git("apply", "--check", str(path))
    scratch.git("apply", str(path))
    assert read_folder(scratch.root, artifact) == read_folder(root, artifact)
    package = artifact.replace("/", ".")
    alias = f"optimize_{artifact.rpartition('/')[2]}"
    served = (scratch.root / "path/a serve ü.py").read_text()
    assert f"from {package} import optimize as {alias}\n" in served and f"    model = {alias}(model)" in served


def test_nothing_faster_is_no_patch(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("of an earlier run")
    scratch = Scratch(tmp_path / "repository")
    head = scratch.commit({"a.py": ""})
    run = RunResult((results.pretended_result(),), "kernelopt optimize")
    assert write_patch(tmp_path, run, tmp_path, open_repository(scratch.root), head) is None
    assert not (tmp_path / NAME).exists()


def test_edits_in_place_are_a_patch_of_the_files_as_they_are(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "repository")
    scratch.commit({"ops/ü.py": b"a = 1\r\nb = 2\r\n"})
    edits = {"ops/ü.py": b"a = 1\r\nb = 3\r\n"}
    result = replace(results.full_result(), edits=edits)
    path = edits_patch(tmp_path, RunResult((result,), "kernelopt optimize"), scratch.root)
    assert path is not None
    scratch.git("apply", str(path))
    assert (scratch.root / "ops/ü.py").read_bytes() == edits["ops/ü.py"]
    unconfirmed = RunResult((replace(result, headline=None),), "kernelopt optimize")
    assert edits_patch(tmp_path, unconfirmed, scratch.root) is None and not path.exists()
