from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.key import key_of
from kernelopt_bot.publish.marks import marked
from tests.github_stand_in import TOKEN, Hub, Repo
from tests.publish.conftest import KERNEL, client, publication

BRANCH = "kernelopt-pr-7"


def operations(hub: Hub) -> list[str]:
    return [name for name, _ in hub.log]


def test_opens_a_pull_request_against_the_head_branch(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    head = repo.sha("faster-models")
    done = forge.publish(publication(head))
    assert (done.operation, done.branch, done.number) == ("created", BRANCH, 1)
    assert done.url == f"{hub.url}/acme/kernels/pull/1"
    assert done.head_sha == repo.sha(BRANCH)
    pull = repo.pulls[1]
    assert (pull["base"]["ref"], pull["title"], pull["body"]) == (
        "faster-models",
        "perf: faster",
        marked(publication(head).body, "1" * 64, "done"),
    )
    assert repo.issue_labels[1] == ["kernelopt"]
    assert repo.git("rev-parse", f"{BRANCH}^") == head
    assert repo.git("show", f"{BRANCH}:{KERNEL}") == "def norm(): ..."
    assert repo.git("show", f"{BRANCH}:models/block.py") == "x = 2"
    assert repo.git("show", f"{BRANCH}:kernelopt_kernels/other/README.md") == "kept"
    assert key_of(repo.git("log", "-1", "--format=%B", BRANCH)) == "1" * 64


def test_the_branch_can_be_cloned_over_http(hub: Hub, repo: Repo, forge: GitHubForge, tmp_path: Path) -> None:
    done = forge.publish(publication(repo.sha("faster-models")))
    url = hub.url.replace("://", f"://x-access-token:{TOKEN}@") + "/acme/kernels.git"
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--branch", BRANCH, url, str(clone)], check=True)
    shown = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == done.head_sha
    assert (clone / KERNEL).read_bytes() == b"def norm(): ...\n"


def test_the_same_twice_changes_nothing(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    first = forge.publish(publication(repo.sha("faster-models")))
    hub.log.clear()
    # A second measurement words things differently; what would run is the same.
    again = forge.publish(replace(publication(repo.sha("faster-models")), body="1.3x (95% interval 1.2x to 1.4x)"))
    assert (again.operation, again.number, again.head_sha) == ("unchanged", 1, first.head_sha)
    assert not [name for name in operations(hub) if "create" in name or "update" in name]


def test_new_content_is_added_on_top(repo: Repo, forge: GitHubForge) -> None:
    first = forge.publish(publication(repo.sha("faster-models")))
    second = forge.publish(
        replace(publication(repo.sha("faster-models"), "2" * 64, b"def faster(): ...\n"), title="perf: more")
    )
    assert (second.operation, second.number) == ("updated", 1)
    assert repo.git("rev-parse", f"{BRANCH}^") == first.head_sha
    assert repo.git("show", f"{BRANCH}:{KERNEL}") == "def faster(): ..."
    assert repo.pulls[1]["title"] == "perf: more"
    assert len(repo.pulls) == 1


def test_a_moved_base_is_merged_never_rewritten(repo: Repo, forge: GitHubForge) -> None:
    first = forge.publish(publication(repo.sha("faster-models")))
    moved = repo.commit("faster-models", {"models/block.py": "x = 3\n"})
    second = forge.publish(publication(moved, "2" * 64))
    assert second.operation == "updated"
    assert repo.git("rev-parse", f"{BRANCH}^1", f"{BRANCH}^2").split() == [first.head_sha, moved]
    assert repo.git("show", f"{BRANCH}:models/block.py") == "x = 3"


def test_a_persons_commit_stops_us(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(publication(repo.sha("faster-models")))
    theirs = repo.commit(BRANCH, {KERNEL: "def mine(): ...\n"}, "My own edit")
    done = forge.publish(publication(repo.sha("faster-models"), "2" * 64))
    assert (done.operation, done.number) == ("reported", 1)
    assert "not ours" in done.reason
    assert repo.sha(BRANCH) == theirs


def test_a_closed_pull_request_is_not_opened_again(repo: Repo, forge: GitHubForge) -> None:
    forge.publish(publication(repo.sha("faster-models")))
    repo.pulls[1]["state"] = "closed"
    assert forge.publish(publication(repo.sha("faster-models"))).operation == "unchanged"
    assert len(repo.pulls) == 1
    other = forge.publish(publication(repo.sha("faster-models"), "2" * 64, b"other\n"))
    assert (other.operation, other.number) == ("created", 2)


def test_files_that_the_base_already_holds_are_no_news(repo: Repo, forge: GitHubForge) -> None:
    p = publication(repo.sha("faster-models"))
    merged = repo.commit("faster-models", {path: content.decode() for path, content in p.files.items()})
    assert forge.publish(replace(p, base_sha=merged)).operation == "unchanged"
    assert not repo.sha(BRANCH)


def test_a_run_that_died_before_the_pull_request_is_taken_up(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    hub.fail("pulls/create", 500, "boom")
    with pytest.raises(UserError, match="500"):
        forge.publish(publication(repo.sha("faster-models")))
    head = repo.sha(BRANCH)
    done = forge.publish(publication(repo.sha("faster-models")))
    assert (done.operation, done.head_sha, len(repo.pulls)) == ("created", head, 1)


def test_a_lost_answer_makes_no_second_pull_request(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    hub.fail("pulls/create", 502, after=True)
    done = forge.publish(publication(repo.sha("faster-models")))
    assert (done.operation, done.number, len(repo.pulls)) == ("created", 1, 1)


def test_a_failed_search_creates_nothing(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    hub.fail("pulls/list", 503)
    with pytest.raises(UserError, match="503 while looking for the pull request"):
        forge.publish(publication(repo.sha("faster-models")))
    assert not repo.sha(BRANCH)


def test_a_push_at_the_same_time_wins(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    forge.publish(publication(repo.sha("faster-models")))
    hub.fail("git/update-ref", 422, "Update is not a fast forward")
    before = repo.sha(BRANCH)
    with pytest.raises(UserError) as e:
        forge.publish(publication(repo.sha("faster-models"), "2" * 64, b"other\n"))
    assert "same time" in e.value.fix
    assert repo.sha(BRANCH) == before


def test_updates_are_fast_forward_only(repo: Repo, forge: GitHubForge, hub: Hub) -> None:
    """The stand-in refuses what isn't, as GitHub does, so a forced update would show in its state."""
    forge.publish(publication(repo.sha("faster-models")))
    first = repo.sha(BRANCH)
    forge.publish(publication(repo.commit("faster-models", {"a": "b\n"}), "2" * 64, b"other\n"))
    assert repo.git("rev-list", "--count", f"{BRANCH}..{first}") == "0"


@pytest.mark.parametrize(
    ("status", "message", "fix"),
    [
        (401, "Bad credentials", "GITHUB_TOKEN"),
        (404, "Not Found", "repository's name"),
        (422, "Validation Failed", "run again"),
        (500, "oops", "run again later"),
        (403, "API rate limit exceeded", "an hour"),
        (429, "slow down", "an hour"),
    ],
)
def test_every_refusal_says_what_to_do(
    hub: Hub, repo: Repo, forge: GitHubForge, status: int, message: str, fix: str
) -> None:
    hub.fail("git/create-tree", status, f"{message} {TOKEN}")
    with pytest.raises(UserError) as e:
        forge.publish(publication(repo.sha("faster-models")))
    assert str(status) in e.value.what
    assert fix in e.value.fix
    assert TOKEN not in str(e.value)
    assert e.value.__cause__ is None
    assert not repo.sha(BRANCH)


def test_a_wrong_token_is_an_error_that_does_not_show_it(hub: Hub, repo: Repo) -> None:
    wrong = "ghp_wrong"
    with pytest.raises(UserError, match="401") as e:
        client(hub, wrong).publish(publication(repo.sha("faster-models")))
    assert wrong not in str(e.value)
    assert wrong not in repr(client(hub, wrong))


def test_without_permission_it_reports(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    repo.push = repo.push_shown = False
    assert "may not write" in forge.can_write()
    done = forge.publish(publication(repo.sha("faster-models")))
    assert (done.operation, done.head_sha) == ("reported", "")
    assert "may not write" in done.reason
    assert not [name for name in operations(hub) if "create" in name]


def test_a_refused_write_is_reported_too(repo: Repo, forge: GitHubForge) -> None:
    repo.push = False
    assert forge.can_write() == ""
    done = forge.publish(publication(repo.sha("faster-models")))
    assert done.operation == "reported"
    assert "contents: write" in done.reason


def test_pull_requests_may_be_forbidden_to_actions(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    hub.fail("pulls/create", 403, "GitHub Actions is not permitted to create or approve pull requests.")
    done = forge.publish(publication(repo.sha("faster-models")))
    assert done.operation == "reported"
    assert "Settings" in done.reason
    page, _, filled = done.url.partition("?")
    assert page == f"{hub.url}/acme/kernels/compare/faster-models...kernelopt-pr-7"
    assert parse_qs(filled) == {"expand": ["1"], "title": ["perf: faster"], "body": [publication("").body]}
    assert repo.sha(BRANCH)


def test_no_token_and_archived(hub: Hub, repo: Repo, forge: GitHubForge) -> None:
    assert "no token" in client(hub, "").can_write()
    repo.archived = True
    assert "archived" in forge.can_write()


def test_an_app_is_not_judged_by_what_github_shows_it(hub: Hub, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.push_shown = False
    token = "ghs_app"
    monkeypatch.setattr("tests.github_stand_in.server.TOKEN", token)
    assert client(hub, token).can_write() == ""
    assert client(hub, token).publish(publication(repo.sha("faster-models"))).operation == "created"


@pytest.mark.parametrize(
    "path", [".github/workflows/ci.yml", "a/.git/hooks/x", "../x", "/etc/x", "a\\b", "a//b", ".GitHub/x", "C:x"]
)
def test_some_paths_are_never_published(hub: Hub, repo: Repo, forge: GitHubForge, path: str) -> None:
    with pytest.raises(InputError):
        forge.publish(replace(publication(repo.sha("faster-models")), files={path: b"x"}))
    assert operations(hub) == []


def test_a_users_file_is_never_replaced_by_a_folder(repo: Repo, forge: GitHubForge) -> None:
    repo.commit("faster-models", {"kernelopt_kernels/block": "a file\n"})
    with pytest.raises(UserError, match="file stands") as e:
        forge.publish(publication(repo.sha("faster-models")))
    assert e.value.where == "kernelopt_kernels/block"


def test_an_unreachable_host_is_explained() -> None:
    forge = GitHubForge("acme/kernels", TOKEN, base_url="http://127.0.0.1:9", retry=None)
    with pytest.raises(UserError, match="can't be reached") as e:
        forge.can_write()
    assert "GITHUB_API_URL" in e.value.fix


def test_the_address_comes_from_the_environment(hub: Hub, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_API_URL", hub.url)
    assert GitHubForge("acme/kernels", TOKEN, retry=None).can_write() == ""


def test_kernels_of_an_earlier_merge_go_and_other_files_stay(repo: Repo, forge: GitHubForge) -> None:
    old, note = "kernelopt_kernels/block/kernels/old.py", "kernelopt_kernels/block/NOTES.md"
    mine = "kernelopt_kernels/block/kernels/mine.py"
    manifest = json.dumps({"runs": [{"kernel": "kernels/old.py"}, {"kernel": "../../models/block.py"}]})
    repo.commit("faster-models", {old: "old\n", KERNEL: "old\n", note: "mine\n", mine: "mine\n",
                                  "kernelopt_kernels/block/manifest.json": manifest})
    p = replace(publication(repo.sha("faster-models")), replaced=("kernelopt_kernels/block/kernels", "absent/kernels"))
    assert forge.publish(p).operation == "created"
    assert repo.git("show", f"{BRANCH}:{KERNEL}") == "def norm(): ..."
    assert repo.git("show", f"{BRANCH}:{note}") == "mine"
    there = repo.git("ls-tree", "-r", "--name-only", BRANCH).split()
    assert old not in there and {mine, "models/block.py"} <= set(there)


def test_a_package_of_a_person_is_not_written_over(repo: Repo, forge: GitHubForge) -> None:
    repo.commit("faster-models", {"kernelopt_kernels/block/__init__.py": "mine\n"})
    p = replace(publication(repo.sha("faster-models")), replaced=("kernelopt_kernels/block/kernels",))
    with pytest.raises(UserError, match="did not write"):
        forge.publish(p)
    assert repo.git("branch", "--list", "kernelopt-*") == ""
