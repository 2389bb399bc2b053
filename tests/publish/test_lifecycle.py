"""What becomes of a pull request of ours, and faults and races on the way."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.key import with_key
from kernelopt_bot.publish.marks import mark_of
from kernelopt_bot.publish.publication import Publication, Published, Withdrawal
from tests.github_stand_in import Hub, Repo
from tests.publish.conftest import KERNEL, client, publication

BRANCH = "kernelopt-pr-7"
OTHER = b"other\n"


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def patient(hub: Hub, clock: Time) -> GitHubForge:
    return client(hub, attempts=5, clock=clock, sleep=clock.sleep)


def p7(repo: Repo, key: str = "1" * 64, content: bytes = b"def norm(): ...\n", **changes: Any) -> Publication:
    return replace(publication(repo.sha("faster-models"), key, content), source=7, **changes)


def bodies(repo: Repo) -> list[str]:
    return [c["body"] for c in repo.comments.values()]


@pytest.mark.parametrize(
    ("fault", "slept"),
    [
        ({"status": 502}, [1.0]),
        ({"status": 502, "drop": True}, [1.0]),
        ({"status": 502, "drop": True, "after": True}, [1.0]),
        ({"status": 500, "after": True, "times": 2}, [1.0, 2.0]),
        ({"status": 429, "headers": (("Retry-After", "9"),)}, [9.0]),
        ({"status": 403, "message": "You have exceeded a secondary rate limit"}, [60.0]),
        ({"status": 403, "headers": (("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "1000020"))}, [21.0]),
    ],
    ids=["5xx", "dropped", "dropped after", "twice", "429", "secondary", "primary"],
)
@pytest.mark.parametrize("operation", ["pulls/create", "git/create-ref"])
def test_what_passes_is_waited_for_and_nothing_is_made_twice(
    hub: Hub, repo: Repo, patient: GitHubForge, clock: Time, fault: dict[str, Any], slept: list[float], operation: str
) -> None:
    hub.fail(operation, **fault)
    done = patient.publish(p7(repo))
    assert (done.operation, done.number, len(repo.pulls)) == ("created", 1, 1)
    # Work that a lost answer hid is found before it is tried again.
    assert clock.slept == (slept[:1] if fault.get("after") else slept)


def test_a_slow_answer_makes_no_second_pull_request(hub: Hub, repo: Repo, clock: Time) -> None:
    hub.fail("pulls/create", 0, delay_s=3.0)
    done = client(hub, attempts=5, clock=clock, sleep=clock.sleep, timeout=2).publish(p7(repo))
    assert (done.operation, done.number, len(repo.pulls)) == ("created", 1, 1)
    assert clock.slept


def test_a_comment_whose_answer_is_lost_is_said_once(hub: Hub, repo: Repo, patient: GitHubForge) -> None:
    patient.publish(p7(repo))
    hub.fail("issues/create-comment", 502, drop=True, after=True)
    assert patient.withdraw(Withdrawal(BRANCH, "gain gone")).operation == "closed"
    assert len(bodies(repo)) == 1


def test_a_limit_that_lasts_too_long_is_an_error_at_once(hub: Hub, repo: Repo, patient: GitHubForge) -> None:
    hub.fail("git/create-tree", 403, headers=(("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "1003600")))
    with pytest.raises(UserError) as e:
        patient.publish(p7(repo))
    assert "in an hour" in e.value.fix
    assert not repo.sha(BRANCH)


@pytest.mark.parametrize("status", [401, 404, 409, 422])
def test_what_does_not_pass_is_not_tried_again(
    hub: Hub, repo: Repo, patient: GitHubForge, clock: Time, status: int
) -> None:
    hub.fail("git/create-commit", status)
    with pytest.raises(UserError, match=str(status)):
        patient.publish(p7(repo))
    assert clock.slept == []


def test_a_source_that_moved_on_stops_it_and_a_swept_branch_may_move(repo: Repo, forge: GitHubForge) -> None:
    old = p7(repo)
    repo.commit("faster-models", {"models/block.py": "x = 3\n"})
    done = forge.publish(old)
    assert done.operation == "reported"
    assert "moved on" in done.reason
    assert not repo.sha(BRANCH)
    assert forge.publish(replace(old, source=None)).operation == "created"


def test_a_source_branch_that_is_gone_stops_it(repo: Repo, forge: GitHubForge) -> None:
    p = p7(repo)
    repo.git("update-ref", "-d", "refs/heads/faster-models")
    assert forge.publish(p) == Published("reported", BRANCH, reason="the branch faster-models is gone")


def test_a_person_is_told_once_that_the_branch_is_theirs(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    theirs = repo.commit(BRANCH, {KERNEL: "def mine(): ...\n"}, "My own edit")
    for done in (
        forge.publish(p7(repo, "2" * 64, OTHER)),
        forge.publish(p7(repo, "3" * 64, OTHER)),
        forge.withdraw(Withdrawal(BRANCH, "superseded")),
        forge.source_closed(BRANCH, 7),
        forge.source_closed(BRANCH, 7, merged_into="main"),
    ):
        assert done.operation == "reported"
        assert "not ours" in done.reason
    assert (repo.sha(BRANCH), repo.pulls[1]["state"], len(bodies(repo))) == (theirs, "open", 1)


def test_an_amended_commit_of_ours_is_a_persons(repo: Repo, forge: GitHubForge) -> None:
    """It keeps our words, the key among them; its tree is another one."""
    forge.publish(p7(repo))
    message = repo.git("show", "-s", "--format=%B", BRANCH)
    repo.git("update-ref", f"refs/heads/{BRANCH}", "faster-models")
    repo.commit(BRANCH, {KERNEL: "def amended(): ...\n"}, message)
    assert "not ours" in forge.publish(p7(repo, "2" * 64, OTHER)).reason


def test_a_conflict_closes_and_opens_anew_on_the_same_branch(repo: Repo, forge: GitHubForge) -> None:
    first = forge.publish(p7(repo))
    moved = repo.commit("faster-models", {KERNEL: "def theirs(): ...\n"})
    done = forge.publish(p7(repo))
    assert (done.operation, done.number) == ("created", 2)
    assert [repo.pulls[n]["state"] for n in (1, 2)] == ["closed", "open"]
    assert "conflicts with its base branch" in bodies(repo)[0]
    assert repo.git("rev-parse", f"{BRANCH}^1", f"{BRANCH}^2").split() == [first.head_sha, moved]
    assert forge.publish(p7(repo)).operation == "unchanged"


def test_what_github_has_not_worked_out_is_no_conflict(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    repo.mergeable[1] = None
    assert forge.publish(p7(repo)).operation == "unchanged"


def test_withdrawn_with_the_reason_and_offered_again_when_the_gain_is_back(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    w = Withdrawal(BRANCH, "gain gone", "1.00x now, says @kim <!-- x --> in #12")
    assert forge.withdraw(w).operation == "closed"
    assert forge.withdraw(w).operation == "unchanged"
    (said,) = bodies(repo)
    assert "nothing here is faster any more. 1.00x now" in said
    assert "@kim" not in said
    assert "#12" not in said
    assert said.count("<!--") == 1
    mark = mark_of(repo.pulls[1]["body"])
    assert mark is not None and mark.state == "closed-gain-gone"
    again = forge.publish(p7(repo))
    assert (again.operation, again.number) == ("created", 2)


@pytest.mark.parametrize("gone", [False, True])
def test_what_a_person_closed_stays_closed_with_or_without_its_branch(
    repo: Repo, forge: GitHubForge, gone: bool
) -> None:
    forge.publish(p7(repo))
    repo.pulls[1]["state"] = "closed"
    if gone:
        repo.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    done = forge.publish(p7(repo))
    assert (done.operation, done.number, len(repo.pulls)) == ("unchanged", 1, 1)
    assert "not opened again" in done.reason


def test_a_deleted_branch_with_news_is_made_again(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    repo.pulls[1]["state"] = "closed"
    repo.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    assert forge.publish(p7(repo, "2" * 64, OTHER)).operation == "created"


def test_files_that_the_base_got_otherwise_close_it(repo: Repo, forge: GitHubForge) -> None:
    p = p7(repo)
    forge.publish(p)
    repo.commit("faster-models", {path: content.decode() for path, content in p.files.items()})
    done = forge.publish(p7(repo, "2" * 64))
    assert (done.operation, done.number) == ("closed", 1)
    assert "exactly these files" in done.reason


def test_a_closed_source_closes_ours(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    assert forge.source_closed(BRANCH, 7).operation == "closed"
    assert "the one that caused it was closed" in bodies(repo)[0]
    assert forge.source_closed(BRANCH, 7).operation == "unchanged"


def test_a_merged_source_retargets_ours_and_asks_for_verification(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    # Squashed: the source's own commit is not on main.
    repo.commit("main", {"models/block.py": "x = 2\n"}, "Faster models (#7)")
    done = forge.source_closed(BRANCH, 7, merged_into="main")
    assert (done.operation, done.number, done.verify_again) == ("retargeted", 1, "main")
    assert repo.pulls[1]["base"]["ref"] == "main"
    again = forge.source_closed(BRANCH, 7, merged_into="main")
    assert (again.operation, again.verify_again) == ("unchanged", "main")
    # Verified anew, with the same result: the branch gets main's head, so that nothing of the source shows in the diff.
    p = replace(p7(repo), base_ref="main", base_sha=repo.sha("main"), source=None)
    assert forge.publish(p).operation == "updated"
    changed = repo.git("diff", "--name-only", f"main...{BRANCH}").split()
    assert sorted(changed) == sorted(p.files)
    assert forge.source_closed(BRANCH, 7, merged_into="main").verify_again == ""


def test_ours_merged_with_its_source_is_closed(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    repo.git("update-ref", "refs/heads/main", BRANCH)
    done = forge.source_closed(BRANCH, 7, merged_into="main")
    assert (done.operation, repo.pulls[1]["state"]) == ("closed", "closed")


def test_a_push_between_reading_and_moving_is_seen(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    """The stand-in refuses what is no fast forward; the second look finds the person's commit."""
    forge.publish(p7(repo))
    made = threading.Event()

    def push() -> None:
        while ("git/create-commit", 201) not in hub.log:
            made.wait(0.002)
        repo.commit(BRANCH, {KERNEL: "def mine(): ...\n"}, "My own edit")

    hub.log.clear()
    hub.fail("git/create-commit", 0, delay_s=0.7)
    person = threading.Thread(target=push)
    person.start()
    done = forge.publish(p7(repo, "2" * 64, OTHER))
    person.join()
    assert done.operation == "reported"
    assert repo.git("show", f"{BRANCH}:{KERNEL}") == "def mine(): ..."


def test_two_runs_at_once_make_one_pull_request(hub: Hub, repo: Repo) -> None:
    answers: list[Published] = []
    gate = threading.Barrier(2)

    def run() -> None:
        forge = client(hub, attempts=3)
        gate.wait(10)
        answers.append(forge.publish(p7(repo)))

    runs = [threading.Thread(target=run) for _ in range(2)]
    for r in runs:
        r.start()
    for r in runs:
        r.join()
    assert {a.number for a in answers} == {1}
    assert len(repo.pulls) == 1
    assert repo.git("rev-list", "--count", f"faster-models..{BRANCH}") == "1"


def test_reviewers_are_asked_once_and_a_refusal_is_a_note(repo: Repo, forge: GitHubForge) -> None:
    repo.permissions["kim"] = "write"
    done = forge.publish(p7(repo, reviewers=("kim", "acme/gpu")))
    assert (repo.requested[1], done.notes) == (["kim", "@gpu"], ())
    repo.requested[1].clear()
    forge.publish(p7(repo, "2" * 64, OTHER, reviewers=("kim",)))
    assert repo.requested[1] == []
    repo.pulls[1]["state"] = "closed"
    refused = forge.publish(p7(repo, "3" * 64, b"third\n", author="stranger"))
    assert refused.operation == "created"
    assert "collaborators" in refused.notes[0]


def test_a_body_that_a_person_wrote_stays_until_there_is_news(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    repo.pulls[1]["body"] = "My own words"
    assert forge.publish(p7(repo)).operation == "unchanged"
    assert repo.pulls[1]["body"] == "My own words"


def test_a_publication_of_two_targets_among_twenty_takes_few_requests(hub: Hub, repo: Repo) -> None:
    held = {f"kernelopt_kernels/t{i}/kernels/k{j}.py": f"{i} {j}\n" for i in range(20) for j in range(4)}
    held |= {f"kernelopt_kernels/t{i}/manifest.json": '{"runs": [{"kernel": "kernels/k1.py"}]}' for i in range(20)}
    repo.commit("faster-models", {**held, "CODEOWNERS": "* @kim\n"})
    repo.permissions["kim"] = "write"
    files = {f"kernelopt_kernels/t{i}/{n}": f"{i} new\n".encode() for i in range(2)
             for n in ("__init__.py", "manifest.json", "README.md", "_runtime.py", "kernels/k0.py", "kernels/new.py")}
    replaced = tuple(f"kernelopt_kernels/t{i}/kernels" for i in range(2))
    for key in ("1" * 64, "2" * 64):
        hub.log.clear()
        changed = {**files, "kernelopt_kernels/t0/README.md": key.encode()}
        p = p7(repo, key, files=changed, replaced=replaced, commit_message=with_key("perf: x", key))
        forge = client(hub)
        assert forge.publish(p).operation in ("created", "updated")
        # The check run, the comment and the permission have the rest of the forty.
        assert len(hub.log) == forge.github.requests <= 26


def test_where_drafts_are_not_to_be_had_it_is_opened_without(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    hub.fail("pulls/create", 422, "Draft pull requests are not supported in this repository.")
    done = forge.publish(p7(repo, draft=True))
    assert (done.operation, repo.pulls[1]["draft"]) == ("created", False)
    assert "no drafts" in done.notes[0]


def test_without_permission_nothing_is_closed(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(p7(repo))
    repo.push = False
    done = forge.withdraw(Withdrawal(BRANCH, "superseded"))
    assert (done.operation, repo.pulls[1]["state"]) == ("reported", "open")
    assert "pull-requests: write" in done.reason
