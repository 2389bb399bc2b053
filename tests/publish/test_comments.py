from __future__ import annotations

import pytest

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish import shown
from kernelopt_bot.publish.comments import StickyComment
from kernelopt_bot.publish.seen import Seen
from tests.github_stand_in import Hub, Repo, checks_api
from tests.publish import seen_runs
from tests.publish.seen_client import Killed, Mortal, writes


@pytest.fixture
def pull(hub: Hub, repo: Repo) -> int:
    body = {"title": "Faster models", "head": "faster-models", "base": "main"}
    return int(Mortal(hub).request("POST", "pulls", body)["number"])


def sticky(hub: Hub, **more: int | bool) -> StickyComment:
    return StickyComment(Mortal(hub, **more), hub.login)  # type: ignore[arg-type]


def test_nothing_gained_and_not_asked_for_is_no_comment(hub: Hub, repo: Repo, pull: int) -> None:
    for seen in (seen_runs.nothing(), seen_runs.failed(), Seen("queued", "b" * 40), Seen("cancelled", "b" * 40)):
        assert sticky(hub).show(pull, seen) is None
    assert repo.comments == {}


def test_the_one_comment_is_edited_in_place(hub: Hub, repo: Repo, pull: int) -> None:
    made = sticky(hub).show(pull, Seen("queued", "b" * 40, asked=True))
    for name, seen in seen_runs.states().items():
        assert sticky(hub).show(pull, seen) == made, name
        assert [c["body"] for c in repo.comments.values()] == [shown.comment(seen)]


def test_an_unchanged_comment_is_not_written_again(hub: Hub, repo: Repo, pull: int) -> None:
    sticky(hub).show(pull, seen_runs.gained())
    before = writes(hub)
    sticky(hub).show(pull, seen_runs.gained())
    assert writes(hub) == before


@pytest.mark.parametrize(
    ("login", "body"),
    [
        ("mallory", f"{shown.COMMENT_MARKER}\nforged"),
        ("github-actions[bot]", f"{shown.COMMENT_MARKER}\nof another installation"),
        ("kernelopt[bot]", f"> {shown.COMMENT_MARKER}\nquoted"),
        ("kernelopt[bot]", f"Some report.\n{shown.COMMENT_MARKER}"),
        ("kernelopt[bot]", ""),
    ],
)
def test_comments_of_others_are_left_alone(hub: Hub, repo: Repo, pull: int, login: str, body: str) -> None:
    other = checks_api.add_comment(hub, repo, pull, login, body)["id"]
    made = sticky(hub).show(pull, seen_runs.gained())
    assert made != other
    assert repo.comments[other]["body"] == body
    assert sticky(hub).show(pull, seen_runs.nothing()) == made


def test_ours_is_found_behind_many_others(hub: Hub, repo: Repo, pull: int) -> None:
    for i in range(120):
        checks_api.add_comment(hub, repo, pull, "developer", f"comment {i}")
    made = sticky(hub).show(pull, seen_runs.gained())
    assert sticky(hub).show(pull, seen_runs.nothing()) == made
    assert len(repo.comments) == 121


def test_a_look_up_that_fails_makes_nothing(hub: Hub, repo: Repo, pull: int) -> None:
    hub.fail("issues/list-comments", 502)
    with pytest.raises(UserError, match="looking for our comment"):
        sticky(hub).show(pull, seen_runs.gained())
    assert repo.comments == {}


def test_an_answer_that_got_lost_makes_no_second_comment(hub: Hub, repo: Repo, pull: int) -> None:
    hub.fail("issues/create-comment", 502, after=True)
    made = sticky(hub, attempts=3).show(pull, seen_runs.gained())
    assert list(repo.comments) == [made]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(2))
def test_killed_at_any_request_it_converges(hub: Hub, repo: Repo, pull: int, at: int, after: bool) -> None:
    with pytest.raises(Killed):
        sticky(hub, at=at, after=after).show(pull, seen_runs.gained())
    sticky(hub).show(pull, seen_runs.gained())
    assert [c["body"] for c in repo.comments.values()] == [shown.comment(seen_runs.gained())]


def test_the_longest_comment_is_taken(hub: Hub, repo: Repo, pull: int) -> None:
    made = sticky(hub).show(pull, seen_runs.many(400))
    assert made in repo.comments
