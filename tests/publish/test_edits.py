"""The edits of a run: proved against the file that they are for, and words and commits that say what they do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.content import publication
from kernelopt_bot.publish.edits import Edits, edits_here, edits_of
from kernelopt_bot.publish.key import base_name, key_of, trailers_of
from kernelopt_bot.publish.local import LocalForge
from kernelopt_bot.publish.publication import Publication
from kernelopt_bot.report.build import build
from kernelopt_bot.report.markdown import BODY_LIMIT
from kernelopt_bot.search.result import RunResult, TargetResult
from kernelopt_bot.targets.git import open_repository
from tests.publish.kernels import OPS, PATH, edit, result, run_of
from tests.report import results
from tests.targets.conftest import Scratch

FILES = {PATH: OPS.encode()}


def found(*given: TargetResult, now: dict[str, bytes] | None = None, permitted: bool = True) -> Edits:
    return edits_of(run_of(*given), FILES.get, (FILES if now is None else now).get, lambda *_: permitted,
                    "kernelopt_kernels")


def made(run: RunResult, edits: Edits, root: Path) -> Publication:
    p = publication(run, build(run), root, base_ref="main", base_sha="a" * 40, edits=edits)
    assert p is not None
    return p


def test_what_the_search_wrote_is_published() -> None:
    edits = found(result())
    assert edits.files == {PATH: edit()} and edits.before == FILES and edits.left == ()
    assert edits.targets == {"kernels_ops_norm"}
    assert found(replace(result(), headline=None)) == Edits() == found(results.full_result())


@pytest.mark.parametrize(("hostile", "why"), [
    (replace(result(), edits={PATH: edit(), "setup.py": b""}), "another file"),
    (replace(result(), edits={"setup.py": edit()}), "another file"),
    (replace(result(), edits={}), "another file"),
    (result(new=edit() + b"import os\n"), "something else"),
    (result(new=edit("scale")), "something else|reason"),
    (result(new=b"\0" * 10), "cannot be read"),
    (result(new=b"#" * (2 << 20)), "larger"),
    (results.triton_result("../up.py", "norm", edit()), "may not be published"),
    (results.triton_result(".github/x.py", "norm", edit()), "may not be published"),
    (results.triton_result("kernelopt_kernels/x.py", "norm", edit()), "another file"),
    (results.triton_result("ops.txt", "norm", edit()), "another file")])
def test_what_it_would_not_have_written_is_refused(hostile: TargetResult, why: str) -> None:
    with pytest.raises(InputError, match=why):
        found(hostile)


def test_a_kernel_that_nobody_wants_to_be_optimised_is_refused() -> None:
    with pytest.raises(InputError, match="lists no such kernel"):
        found(result(), permitted=False)


@pytest.mark.parametrize("now", [{}, {PATH: OPS.encode() + b"# more\n"}])
def test_a_file_that_changed_on_the_branch_is_stale(now: dict[str, bytes]) -> None:
    edits = found(result(), now=now)
    [(target, why)] = edits.left
    assert edits.made == () and target == "kernels_ops_norm" and why.startswith(f"stale: {PATH} has changed")


def test_of_two_kernels_of_one_file_the_larger_gain_goes_first() -> None:
    edits = found(result(), result("scale", speedup=1.5))
    assert edits.files == {PATH: edit("scale")}
    [(target, why)] = edits.left
    assert target == "kernels_ops_norm" and "a later run takes this one up" in why


def test_the_words_say_which_file_is_edited_and_show_how(tmp_path: Path) -> None:
    run = run_of(result(), number=7)
    p = made(run, found(*run.results), tmp_path)
    screen = p.body.split("\n---\n")[0]
    assert p.title == "perf: verified faster kernels for kernels_ops_norm"
    assert "against the best applicable baseline, `your kernel`" in screen
    assert f"`{PATH}` is edited in place; no other file changes. \n\n**The edit.** Other launch" in screen
    assert "```diff\n--- a/kernels/ops.py\n+++ b/kernels/ops.py\n" in screen
    assert "-    norm[lambda meta: (1,)](x, BLOCK=1024)\n" in screen
    assert "+    norm[lambda meta: (1,)](x, BLOCK=512, num_warps=8)\n" in screen
    assert "import optimize" not in p.body and "KERNELOPT_DISABLE" not in p.body and "torch.compile" not in screen
    assert p.files == {PATH: edit()} and p.replaced == () and len(p.body) <= BODY_LIMIT
    assert "manifest.json" not in p.commit_message and "The evidence is in the pull request." in p.commit_message
    assert trailers_of(p.commit_message).edits == {base_name("kernels_ops_norm")}


def test_beside_a_models_artifact(tmp_path: Path) -> None:
    model = results.full_result()
    (tmp_path / model.artifact).mkdir(parents=True)
    (tmp_path / model.artifact / "manifest.json").write_text("{}\n")
    run = run_of(model, result())
    p = made(run, found(*run.results), tmp_path)
    assert set(p.files) == {PATH, f"{model.artifact}/manifest.json"} and p.replaced == (f"{model.artifact}/kernels",)
    assert f"`{model.artifact}` are added or replaced; `{PATH}` is edited in place; no other file" in p.body
    assert "model = optimize(model)" in p.body and "KERNELOPT_DISABLE=1" in p.body
    assert "each folder's manifest.json" in p.commit_message


def test_the_key_covers_the_rest_of_the_file_and_no_measured_figure(tmp_path: Path) -> None:
    keys = {key_of(made(run_of(r), found(r), tmp_path).commit_message) for r in (result(), replace(
        result(), headline=results.comparison("your kernel", 1.3)))}
    assert len(keys) == 1
    before = replace(found(result()).made[0], before=OPS.encode() + b"# of somebody\n")
    assert key_of(made(run_of(result()), Edits((before,)), tmp_path).commit_message) not in keys


def published(scratch: Scratch, tmp_path: Path, head: str) -> tuple[Edits, str]:
    run = run_of(result(), head=head)
    edits = edits_here(run, open_repository(scratch.root), head, "main", Config())
    new = publication(run, build(run), tmp_path, base_ref="main", base_sha=head, edits=edits)
    return edits, LocalForge(scratch.root, tmp_path).publish(new).operation if new is not None else ""


def test_a_local_branch_has_the_edited_file_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "repository")
    head = scratch.commit({PATH: OPS, "other.py": "x = 1\n"})
    _, operation = published(scratch, tmp_path, head)
    branch = f"kernelopt-{head[:12]}"
    assert operation == "created"
    assert scratch.git("diff", "--name-status", head, branch).split() == ["M", PATH]
    assert scratch.git("show", f"{branch}:{PATH}") + "\n" == edit().decode()
    assert (scratch.root / PATH).read_text() == OPS, "the work tree stays"
    tip = scratch.git("rev-parse", branch)
    _, operation = published(scratch, tmp_path, head)
    assert (operation, scratch.git("rev-parse", branch)) == ("unchanged", tip)


def test_a_local_branch_that_moved_on_and_an_executable_file(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "repository")
    head = scratch.commit({PATH: OPS})
    scratch.commit({PATH: OPS + "# newer\n"})
    edits, operation = published(scratch, tmp_path, head)
    assert operation == "" and edits.left[0][1].startswith("stale: ")
    (scratch.root / PATH).chmod(0o755)
    edits, operation = published(scratch, tmp_path, scratch.commit({PATH: OPS}))
    assert operation == "" and "or is executable" in edits.left[0][1]


def test_a_marker_or_the_list_of_the_commit_permits_it(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "repository")
    bare = OPS.replace("# kernelopt: inputs=make_inputs\n", "")
    head = scratch.commit({PATH: bare})
    run, repository = run_of(result(new=edit(text=bare))), open_repository(scratch.root)
    with pytest.raises(InputError, match="lists no such kernel"):
        edits_here(run, repository, head, "main", Config())
    config = Config.model_validate({"kernels": [{"path": PATH, "kernel": "norm", "inputs": "make_inputs"}]})
    assert edits_here(run, repository, head, "main", config).files == {PATH: edit(text=bare)}
