"""The patch of a run: git takes it, and what it makes is what would have been published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelopt_bot.cli.patch import NAME, edits_patch, together, write_patch
from kernelopt_bot.publish.files import read_folder
from kernelopt_bot.search.result import RunResult, TargetResult
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
    result = replace(results.full_result(), edits=edits, edited={"ops/ü.py": b"a = 1\r\nb = 2\r\n"})
    notes: list[str] = []
    path = edits_patch(tmp_path, RunResult((result,), "kernelopt optimize"), scratch.root, notes.append)
    assert path is not None and notes == []
    scratch.git("apply", str(path))
    assert (scratch.root / "ops/ü.py").read_bytes() == edits["ops/ü.py"]
    unconfirmed = RunResult((replace(result, headline=None),), "kernelopt optimize")
    assert edits_patch(tmp_path, unconfirmed, scratch.root, notes.append) is None and not path.exists()


def edit(name: str, old: bytes, new: bytes) -> TargetResult:
    result = results.full_result()
    return replace(result, target=replace(result.target, name=name), edits={"ops.py": new}, edited={"ops.py": old})


def test_the_edits_of_two_kernels_of_one_file_are_one_patch(tmp_path: Path) -> None:
    scratch, notes = Scratch(tmp_path / "repository"), list[str]()
    old = b"a = 1\nb = 2\n\nc = 3\n"
    scratch.commit({"ops.py": old})
    found = [edit("first", old, old.replace(b"a = 1", b"# why\na = 8")), edit("second", old, old.replace(b"3", b"4"))]
    path = edits_patch(tmp_path, RunResult(tuple(found), ""), scratch.root, notes.append)
    scratch.git("apply", str(path))
    assert (scratch.root / "ops.py").read_bytes() == b"# why\na = 8\nb = 2\n\nc = 4\n" and notes == []
    scratch.git("checkout", "ops.py")
    found.insert(1, edit("meets it", old, old.replace(b"a = 1", b"a = 9")))
    edits_patch(tmp_path, RunResult(tuple(found), ""), scratch.root, notes.append)
    scratch.git("apply", str(path))
    assert (scratch.root / "ops.py").read_bytes() == b"# why\na = 8\nb = 2\n\nc = 4\n"
    assert len(notes) == 1 and "meets it" in notes[0]


def test_what_a_person_edits_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    scratch, notes = Scratch(tmp_path / "repository"), list[str]()
    old = b"".join(b"line %d\n" % n for n in range(20))
    scratch.commit({"ops.py": old})
    run = RunResult((edit("k", old, old.replace(b"line 3\n", b"line 3, faster\n")),), "")
    (scratch.root / "ops.py").write_bytes(old + b"by a person\n")
    path = edits_patch(tmp_path, run, scratch.root, notes.append)
    assert path is not None and b"by a person" not in path.read_bytes()
    assert notes == ["ops.py has changed since the search read it: kernelopt.patch is for the file as it was"]
    scratch.git("apply", str(path))
    assert (scratch.root / "ops.py").read_bytes().endswith(b"line 19\nby a person\n")
    (scratch.root / "ops.py").unlink()
    assert edits_patch(tmp_path, run, scratch.root, notes.append) is not None and len(notes) == 2


def test_changes_of_one_file_go_together_unless_they_meet() -> None:
    old = b"a\nb\nc\n"
    assert together(old, [b"a\nB\nc\n"]) == b"a\nB\nc\n"
    assert together(old, [b"a\nb\nc\nd\n", b"a\nb\nc\ne\n"]) is None
    assert together(old, [b"a\nb\nc\nd\n", b"0\na\nb\nc\n", b"0\na\nb\nc\n"]) == b"0\na\nb\nc\nd\n"
    assert together(old, [b"a\nx\nb\nc\n", b"a\ny\nb\nc\n"]) is None
    assert together(old, [b"A\nb\nc\n", b"a\nB\nc\n"]) == b"A\nB\nc\n"
    assert together(old, [old, b"a\nb\nC\n"]) == b"a\nb\nC\n" and together(b"a\r\nb", [b"a\r\nc"]) == b"a\r\nc"
