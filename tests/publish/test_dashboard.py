from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.dashboard import MARKER, Board, Dashboard, Held, Sweep, Unoptimised, body, held
from tests.github_stand_in import Hub, Repo
from tests.publish.seen_client import Killed, Mortal, writes
from tests.publish.seen_runs import EVIL
from tests.publish.test_shown import Elements

BOARD = Board(
    (
        Held("encoder", "held", 1.31, 1.29, 1.33, "NVIDIA H200, torch 2.11.0, triton 3.6.0"),
        Held("decoder", "stale", 1.2, 1.1, 1.3, "NVIDIA H200", "torch is 2.13.0 now", 9, "https://github.com/a/b/pull/9"),
    ),
    (Unoptimised("net", "models/net.py", "nothing adopted, 34 candidates"),),
    Sweep("2026-11-30 03:17 UTC", "2 artifacts verified, 1 stale", "https://github.com/a/b/actions/runs/2"),
)


def board(hub: Hub, **more: int | bool) -> Dashboard:
    return Dashboard(Mortal(hub, **more), hub.login)  # type: ignore[arg-type]


def test_the_issue_is_made_once_and_edited_in_place(hub: Hub, repo: Repo) -> None:
    number = board(hub).show(Board())
    assert board(hub).show(BOARD) == number
    assert [i["body"] for i in repo.issues.values()] == [body(BOARD)]
    before = writes(hub)
    board(hub).show(BOARD)
    assert writes(hub) == before


def test_what_it_says() -> None:
    text = body(BOARD).replace("\u00a0", " ")
    assert "| `encoder` | 1.310x | 1.290x to 1.330x | NVIDIA H200, torch 2.11.0, triton 3.6.0 | held |  |" in text
    assert "**stale**: torch is 2.13.0 now | [#9](https://github.com/a/b/pull/9) |" in text
    assert "| `net` | `models/net.py` | nothing adopted, 34 candidates |" in text
    assert "2026-11-30 03:17 UTC: 2 artifacts verified, 1 stale ([workflow run](" in text
    assert "/kernelopt optimize decoder\n/kernelopt optimize net\n" in text
    assert "optimize encoder" not in text


def test_an_empty_one_says_so() -> None:
    text = body(Board())
    for said in ("No artifact is committed yet.", "Every target has one.", "No nightly sweep has finished yet."):
        assert said in text


def test_a_dashboard_that_a_person_closed_is_left_alone(hub: Hub, repo: Repo) -> None:
    number = board(hub).show(Board())
    assert number is not None
    repo.issues[number]["state"] = "closed"
    assert board(hub).show(BOARD) is None
    assert len(repo.issues) == 1
    assert repo.issues[number]["body"] == body(Board())


def test_a_forged_one_is_left_alone(hub: Hub, repo: Repo) -> None:
    own, hub.login = hub.login, "mallory"
    forged = Mortal(hub).request("POST", "issues", {"title": "KernelOPT dashboard", "body": f"{MARKER}\nforged"})
    hub.login = own
    assert board(hub).show(BOARD) != forged["number"]
    assert repo.issues[forged["number"]]["body"].endswith("forged")


def test_a_look_up_that_fails_makes_nothing(hub: Hub, repo: Repo) -> None:
    hub.fail("issues/list-for-repo", 502)
    with pytest.raises(UserError, match="looking for the dashboard"):
        board(hub).show(BOARD)
    assert repo.issues == {}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(2))
def test_killed_at_any_request_it_converges(hub: Hub, repo: Repo, at: int, after: bool) -> None:
    with pytest.raises(Killed):
        board(hub, at=at, after=after).show(BOARD)
    board(hub).show(BOARD)
    assert [i["body"] for i in repo.issues.values()] == [body(BOARD)]


def test_text_from_elsewhere_stays_text() -> None:
    text = body(
        Board(
            (Held(EVIL, "stale", None, None, None, EVIL, EVIL, 1, f"https://x/){EVIL}"),),
            (Unoptimised(EVIL, EVIL, EVIL), Unoptimised("net; rm -rf /", "x")),
            Sweep(EVIL, EVIL, f"javascript:{EVIL}"),
        )
    )
    page = Elements(text)
    assert {"script", "img", "em"}.isdisjoint(page.tags)
    assert page.links == []
    assert [c.strip() for c in page.comments] == ["kernelopt:dashboard"]
    commands = text.rpartition("```text\n")[2].partition("\n```")[0]
    assert {line.split()[0] for line in commands.splitlines()} == {"/kernelopt"}
    assert len(commands.splitlines()) == 5


def test_it_is_cut_within_the_limit() -> None:
    text = body(Board(tuple(Held(f"t{i}", "stale", reason="why " * 100) for i in range(3000))))
    assert len(text) <= 58_000
    assert "more artifacts not shown" in text
    assert "### Commands" in text


def test_a_manifest_is_read_as_data_that_nobody_vouches_for(tmp_path: Path) -> None:
    manifest = {
        "target": "encoder",
        "environment": {"device": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0"},
        "evidence": {"speedup": 1.31, "low": 1.29, "high": 1.33},
    }
    assert held(json.loads(json.dumps(manifest)), "held") == BOARD.held[0]
    assert held({"evidence": 3, "environment": [], "target": None}, "stale", "no manifest") == Held(
        "None", "stale", reason="no manifest"
    )
    assert held({"evidence": {"speedup": "x", "low": -1.0, "high": float("nan")}}, "held").speedup is None
