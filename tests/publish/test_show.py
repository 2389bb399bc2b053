from __future__ import annotations

from pathlib import Path

from kernelopt_bot.publish.seen import Seen
from kernelopt_bot.publish.show import Place, show
from tests.github_stand_in import Hub, Repo
from tests.publish import seen_runs
from tests.publish.seen_client import Mortal


def opened(hub: Hub) -> int:
    body = {"title": "Faster models", "head": "faster-models", "base": "main"}
    return int(Mortal(hub).request("POST", "pulls", body)["number"])


def test_a_run_from_its_start_to_its_end(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    head = repo.sha("faster-models")
    place = Place(opened(hub), "kernelopt-1-1", hub.app, tmp_path / "summary.md")
    assert show(Mortal(hub), Seen("queued", head, asked=True), place) == ()
    assert not (tmp_path / "summary.md").exists()
    assert show(Mortal(hub), seen_runs.gained(head), place) == ()
    assert "1 of 3 targets faster" in (tmp_path / "summary.md").read_text()
    assert ["1 of 3 targets faster" in c["body"] for c in repo.comments.values()] == [True]
    assert [c["conclusion"] for c in repo.checks.values()] == ["success"]
    notes = [a for found in repo.annotations.values() for a in found]
    assert {(a["path"], a["start_line"]) for a in notes} == {("models/block.py", 3)}


def test_requests_of_a_whole_run_are_few(hub: Hub, repo: Repo) -> None:
    head, place = repo.sha("faster-models"), Place(opened(hub), "kernelopt-1-1", hub.app)
    client = Mortal(hub)
    for seen in (Seen("queued", head), Seen("running", head), seen_runs.gained(head)):
        show(client, seen, place)
    assert client.requests <= 12


def test_what_is_refused_costs_nothing_else(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    head, place = repo.sha("faster-models"), Place(opened(hub), "kernelopt-1-1", hub.app, tmp_path / "summary.md")
    hub.fail("issues/create-comment", 403, "Resource not accessible by integration")
    said = show(Mortal(hub), seen_runs.gained(head), place)
    assert [s.partition(":")[0] for s in said] == ["the comment could not be written"]
    assert "`pull-requests: write`" in said[0]
    assert [c["conclusion"] for c in repo.checks.values()] == ["success"]


def test_without_a_token_there_is_the_summary(tmp_path: Path) -> None:
    place = Place(7, "kernelopt-1-1", summary=tmp_path / "summary.md")
    assert show(None, seen_runs.nothing(), place) == ()
    assert (tmp_path / "summary.md").read_text().startswith("\n## KernelOPT: nothing adopted for 1 target")
    assert len(show(None, seen_runs.nothing(), Place(7, "x", summary=tmp_path))) == 1
