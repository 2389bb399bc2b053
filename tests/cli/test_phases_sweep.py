"""Sweeps through authorise and publish: caps, the fix, the removal, call sites, the dashboard."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.cli.phases import read_order
from kernelopt_bot.compiler.releases import digest
from kernelopt_bot.publish.files import read_folder
from kernelopt_bot.publish.github import GitHub
from kernelopt_bot.publish.removal import Declined, removable
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import NONE_OPEN, Plan, Proposal, Search, Swept, Verified
from kernelopt_bot.targets.wire import wired
from tests.cli.conftest import CONFIG, Case
from tests.github_stand_in import TOKEN

Made = tuple[RunResult, Path]
ARTIFACT = "kernelopt_kernels/transformer_block"
STALE = "verified with torch 2.0.0, here is 2.11.0"
BRANCH = "kernelopt-sweep-main"


def without_gain(run: RunResult) -> RunResult:
    """The same targets, searched to their end, and nothing found."""
    return replace(run, results=tuple(
        replace(r, headline=None, artifact="", stitched=(), trials=tuple(replace(t, adopted=False) for t in r.trials))
        for r in run.results))


def swept(action: str, state: str = "stale", reason: str = STALE) -> Swept:
    return Swept((Verified(ARTIFACT, state, reason),),
                 Plan((Search("transformer_block", 0.2, "its artifact is stale"),), (("other", "nothing to gain"),)),
                 (Proposal(ARTIFACT, state, action, reason),))  # type: ignore[arg-type]


def commit(case: Case, made: Made, **more: str) -> None:
    """The artifact, as a merge of ours left it on main; `more`: files beside it."""
    files = {path: content.decode() for path, content in read_folder(made[1], ARTIFACT).items()}
    case.repo.commit("main", files | {f"{ARTIFACT}/{name}": text for name, text in more.items()})


def open_ours(case: Case, branch: str, target: str) -> None:
    case.repo.commit(branch, {f"kernelopt_kernels/{target}/manifest.json": "{}"})
    github = GitHub("acme/kernels", TOKEN, base_url=case.hub.url, seconds_between_writes=None)
    github.request("POST", "pulls", {"base": "main", "head": branch, "title": "ours"})


def test_open_pull_requests_of_ours_are_counted_before_anything_runs(case: Case) -> None:
    assert case.sweep() == 0 and case.outputs["execute"] == "true"
    order = read_order(case.job)
    assert order.job.sweep and order.opened == NONE_OPEN, "a person's pull request does not count"
    open_ours(case, "kernelopt-pr-99", "encoder")
    case.sweep()
    opened = read_order(case.job).opened
    assert (opened.pulls, opened.targets, opened.waiting) == (1, ("encoder",), "")
    open_ours(case, BRANCH, "decoder")
    case.sweep()
    assert "of an earlier sweep is open" in read_order(case.job).opened.waiting


def test_pull_requests_that_cannot_be_read_let_nothing_be_searched(case: Case) -> None:
    case.hub.fail("pulls/list", 404)
    assert case.sweep() == 0
    assert "cannot be read" in read_order(case.job).opened.waiting


def test_a_fix_is_published_with_its_reason(case: Case, made: Made) -> None:
    commit(case, made)
    manifest = json.loads((made[1] / ARTIFACT / "manifest.json").read_text())
    manifest["runs"][0]["kernel"] = "kernels/old.py"
    case.repo.commit("main", {f"{ARTIFACT}/README.md": "an older one\n", f"{ARTIFACT}/kernels/old.py": "x = 1\n",
                              f"{ARTIFACT}/manifest.json": json.dumps(manifest)})
    case.sweep()
    case.execute(*made, swept("mend"))
    assert case.publish() == 0
    [ours] = case.ours()
    assert (ours["head"]["ref"], ours["base"]["ref"]) == (BRANCH, "main")
    assert f"stale ({STALE}); replaced by a new one" in ours["body"]
    changed = case.repo.git("diff", "--name-status", "main", BRANCH).splitlines()
    assert f"D\t{ARTIFACT}/kernels/old.py" in changed and f"M\t{ARTIFACT}/README.md" in changed
    assert f"`{ARTIFACT}`: stale: {STALE}: replaced by a new one" in case.summary
    assert case.publish() == 0 and case.outputs["operation"] == "unchanged"


def test_a_removal_takes_what_a_release_wrote_and_nothing_else(case: Case, made: Made) -> None:
    commit(case, made)
    before = case.repo.git("ls-tree", "-r", "--name-only", "main").splitlines()
    case.sweep()
    case.execute(without_gain(made[0]), made[1], swept("remove"))
    assert case.publish() == 0
    assert case.outputs["operation"] == "created"
    [ours] = case.ours()
    left = case.repo.git("ls-tree", "-r", "--name-only", BRANCH).splitlines()
    assert left == [p for p in before if not p.startswith(f"{ARTIFACT}/")]
    assert "removed, since a new search found no gain" in ours["body"] and STALE in ours["body"]
    assert "from kernelopt_kernels.transformer_block import optimize" in ours["body"]
    assert ours["title"] == "perf: remove kernels that gain nothing any more for transformer_block"
    assert case.check["conclusion"] == "neutral"
    assert case.publish() == 0 and case.outputs["operation"] == "unchanged"


def test_the_lines_that_call_it_go_with_it(case: Case, made: Made) -> None:
    app = "from models.block import Block\n\n\ndef make():\n    net = Block()\n    return net\n"
    called = wired(app, "make", "Block", "kernelopt_kernels.transformer_block").text
    wire = f"{CONFIG}targets:\n  - {{path: models/block.py, entry: Block, wire: 'app.py:make'}}\n"
    case.repo.commit("main", {"app.py": called, ".kernelopt.yml": wire})
    commit(case, made)
    case.sweep()
    case.execute(without_gain(made[0]), made[1], swept("remove"))
    assert case.publish() == 0
    assert case.repo.raw("show", f"{BRANCH}:app.py").decode() == app
    body = case.ours()[0]["body"]
    assert "app.py calls it no more: 2 lines go" in body and "the import fails" not in body


@pytest.mark.parametrize("edit", ["kernels/mine.txt", "manifest.json"])
def test_an_artifact_that_a_person_touched_stays(case: Case, made: Made, edit: str) -> None:
    commit(case, made, **{edit: "mine\n"})
    case.sweep()
    case.execute(without_gain(made[0]), made[1], swept("remove"))
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and not case.ours()
    assert f"{ARTIFACT} stays: it was edited" in case.summary


@pytest.mark.parametrize(("edit", "why"), [
    ({}, ""), ({"kernels/mine.py": "x = 1\n"}, "does not name"),
    ({"test_kernelopt_mine.py": "x = 1\n"}, "does not name"),
    ({"KERNEL": "x = 1\n"}, "it was edited"), ({"manifest.json": "[]"}, "cannot be read")],
    ids=["untouched", "a kernel beside", "a test beside", "a kernel", "the manifest"])
def test_an_artifact_of_an_earlier_release_goes_only_as_its_manifest_says(case: Case, made: Made, edit: dict[str, str],
                                                                          why: str) -> None:
    runtime = "x = 'of release 0.0.9'\n"
    files = {p.relative_to(made[1] / ARTIFACT).as_posix(): p.read_text() for p in (made[1] / ARTIFACT).rglob("*.py")}
    kernel = next(name for name in files if name.startswith("kernels/"))
    files |= {"manifest.json": (made[1] / ARTIFACT / "manifest.json").read_text(), "_runtime.py": runtime}
    files |= {kernel if name == "KERNEL" else name: text for name, text in edit.items()}
    head = case.repo.commit("main", {f"{ARTIFACT}/{name}": text for name, text in files.items()})
    rest = GitHub("acme/kernels", TOKEN, base_url=case.hub.url)
    if why:
        with pytest.raises(Declined, match=why):
            removable(rest, head, ARTIFACT, {"0.0.9": digest(runtime)})
    else:
        assert removable(rest, head, ARTIFACT, {"0.0.9": digest(runtime)}) == tuple(
            sorted(f"{ARTIFACT}/{name}" for name in files))


def test_what_was_edited_is_reported_and_not_touched(case: Case, made: Made) -> None:
    commit(case, made)
    case.sweep()
    case.execute(replace(made[0], results=()), made[1], swept("remove", "modified", "kernels/x.py"))
    assert case.publish() == 0
    assert not case.ours() and f"`{ARTIFACT}`: modified: kernels/x.py" in case.summary


def test_a_sweep_does_not_take_the_place_of_what_it_did_not_look_at(case: Case, made: Made) -> None:
    open_ours(case, "other", "encoder")
    case.repo.pulls.clear()
    case.sweep()
    case.execute(*made)
    case.publish()
    branch = case.ours()[0]["head"]["ref"]
    # The same branch, later, with a search of another target.
    other = replace(made[0].results[0], target=replace(made[0].results[0].target, name="other_block"))
    case.execute(without_gain(replace(made[0], results=(other,))), made[1])
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and case.ours()[0]["state"] == "open", branch


def test_a_newer_result_supersedes_an_older_pull_request(case: Case, made: Made) -> None:
    case.run("authorise")
    case.execute(*made)
    case.publish()
    older = case.ours()[0]
    older["base"] |= {"ref": "main"}
    case.repo.commit("main", {"models/block.py": "x = 4\n"})
    case.sweep()
    case.execute(*made)
    assert case.publish() == 0 and case.outputs["operation"] == "created"
    assert older["state"] == "closed" and "a newer one covers it" in case.comments(older["number"])


def test_the_call_site_is_changed_where_the_head_commit_says(case: Case, made: Made) -> None:
    app = "from models.block import Block\n\n\ndef make():\n    net = Block()\n    return net\n"
    wire = f"{CONFIG}targets:\n  - {{path: models/block.py, entry: Block, wire: 'app.py:make'}}\n"
    case.repo.commit("faster-models", {"app.py": app, ".kernelopt.yml": wire})
    case.run("authorise")
    case.execute(*made)
    assert case.publish() == 0
    branch = case.ours()[0]["head"]["ref"]
    new = case.repo.git("show", f"{branch}:app.py")
    assert "net = optimize_transformer_block(net)  # KernelOPT" in new
    body = case.ours()[0]["body"]
    assert "`app.py` calls them" in body and "app.py calls optimize now: lines 2 and 7" in body
    assert "Nothing gets faster until" not in body.split("---")[0]


@pytest.mark.parametrize("place", [".github/workflows/x.py:make", "absent.py:make"])
def test_a_call_site_in_a_place_that_is_not_permitted(case: Case, made: Made, place: str) -> None:
    app = "from models.block import Block\n\n\ndef make():\n    net = Block()\n    return net\n"
    wire = f"{CONFIG}targets:\n  - {{path: models/block.py, entry: Block, wire: '{place}'}}\n"
    case.repo.commit("faster-models", {".github/workflows/x.py": app, ".kernelopt.yml": wire})
    case.run("authorise")
    case.execute(*made)
    code = case.publish()
    if place.startswith("absent"):
        assert code == 0 and "absent.py is not changed: there is no file absent.py" in case.ours()[0]["body"]
    else:
        assert code == 2 and not case.ours() and case.check["conclusion"] == "failure"


def test_the_dashboard_is_kept_where_the_policy_asks_for_it(case: Case, made: Made) -> None:
    case.repo.commit("main", {".kernelopt.yml": f"{CONFIG}sweep: {{ dashboard: true }}\n"})
    commit(case, made)
    for _ in range(2):
        case.sweep()
        case.execute(without_gain(made[0]), made[1], swept("remove"))
        assert case.publish() == 0
    [issue] = case.repo.issues.values()
    number = case.ours()[0]["number"]
    assert "transformer_block" in issue["body"] and f"**stale**: {STALE}" in issue["body"]
    assert f"#{number}" in issue["body"] and "1 artifacts verified, 1 targets searched" in issue["body"]
    assert "other" in issue["body"]


def test_without_asking_there_is_no_dashboard(case: Case, made: Made) -> None:
    case.sweep()
    case.execute(without_gain(made[0]), made[1])
    assert case.publish() == 0 and not case.repo.issues
