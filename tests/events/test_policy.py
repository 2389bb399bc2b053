"""Who may ask, what stops a run, and what is looked at again before execution and publication."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.events import rules
from kernelopt_bot.events.commands import Command
from kernelopt_bot.events.facts import LEVELS, Commit, Facts, needed, permission_in, reaches
from kernelopt_bot.events.job import Ignored, Job, PullRequest, Reply
from kernelopt_bot.events.policy import authorise, on_pull_request, recheck
from kernelopt_bot.events.settings import Commands, Events, Policy, Runner
from kernelopt_bot.publish.key import with_key

HEAD, BASE, NEW = "1" * 40, "2" * 40, "3" * 40
PULL = PullRequest(12, "Faster attention", "octocat", "attention", HEAD, "trunk", BASE, False, False,
                   head_repository="octo-org/models")
FORK = replace(PULL, fork=True, head_repository="somebody/models")
PUSHED = Job("pull_request", "synchronize", "octo-org/models", HEAD, BASE, PULL, "trunk", actor="octocat",
             source_branch="attention", number=12)
ASKED = Job("issue_comment", "created", "octo-org/models", "", "", None, "trunk", "optimize", "octocat",
            command=Command("optimize"), number=12, comment_id=5)
LABELLED = replace(PUSHED, action="labeled")
FACTS = Facts(pull_request=PULL, permission="write", commits=(Commit("Faster"),), changed=("models/net.py",))
WITH_LABEL = replace(FACTS, pull_request=replace(PULL, labels=("kernelopt",)))
POLICY = Policy()
EPHEMERAL = Policy(runner=Runner(ephemeral=True))


def asked(**command: Any) -> Job:
    return replace(ASKED, command=replace(Command("optimize"), **command))


def pull(**changes: Any) -> Facts:
    return replace(FACTS, pull_request=replace(PULL, **changes))


class TestAuthorise:
    def test_a_push_waits_for_the_quiet_period(self) -> None:
        assert authorise(PUSHED, FACTS, POLICY) == replace(PUSHED, wait_s=300.0)

    @pytest.mark.parametrize("action", ["opened", "reopened", "ready_for_review", "edited", "unlabeled"])
    def test_others_do_not(self, action: str) -> None:
        job = replace(PUSHED, action=action)
        assert authorise(job, FACTS, POLICY) == job

    def test_a_comment_is_bound_to_the_head(self) -> None:
        assert authorise(ASKED, FACTS, POLICY) == replace(
            ASKED, head_sha=HEAD, base_sha=BASE, pull_request=PULL, source_branch="attention")

    @pytest.mark.parametrize(("facts", "reason"), [
        (pull(draft=True), "is a draft"),
        (pull(closed=True), "is closed"),
        (pull(bot=True, author="renovate[bot]"), "opened by the bot renovate[bot]"),
        (pull(labels=("no-kernelopt",)), "has the label no-kernelopt"),
        (pull(title="Docs [Skip KernelOPT]"), "[skip kernelopt] in its title"),
        (pull(title="Docs [kernelopt skip]"), "in its title"),
        (pull(head_ref="kernelopt-pr-3"), "KernelOPT's own"),
        (pull(fork=True), "comes from a fork"),
        (pull(head_sha=NEW), "moved from 111111111111 to 333333333333"),
        (replace(FACTS, pull_request=None), "cannot be read"),
        (pull(number=13), "#12 cannot be read"),
        (replace(FACTS, commits=None), "may be KernelOPT's own"),
        (replace(FACTS, commits=(Commit("Docs\n\n[skip kernelopt]"), Commit("x"))), "commit says [skip kernelopt]"),
        (replace(FACTS, commits=(Commit(with_key("perf: faster", "a" * 64)),)), "the commits are KernelOPT's own"),
        (replace(FACTS, commits=(Commit("Merge", merge=True), Commit(with_key("perf", "a" * 64)))), "KernelOPT's own"),
        (replace(FACTS, changed=()), "no file changed"),
        (replace(FACTS, opted_out=frozenset({"models/net.py"})), "opts out"),
        (replace(FACTS, runs_today=3), "3 runs today already; events.runs_a_day is 3"),
        (replace(FACTS, runs_today=None), "cannot be counted"),
    ])
    def test_what_stops_a_run_by_itself(self, facts: Facts, reason: str) -> None:
        answer = authorise(PUSHED, facts, POLICY)
        assert isinstance(answer, Ignored)
        assert reason in answer.reason

    @pytest.mark.parametrize(("events", "reason"), [
        (Events(automatic=False), "events.automatic is false"),
        (Events(ignore_authors=("octocat",)), "events.ignore_authors"),
        (Events(ignore_branches=("att*",)), "events.ignore_branches"),
        (Events(paths=("kernels/*",)), "events.paths"),
        (Events(ignore_paths=("*.py",)), "events.ignore_paths"),
        (Events(runs_a_day=0), "events.runs_a_day is 0"),
    ])
    def test_what_the_configuration_stops(self, events: Events, reason: str) -> None:
        answer = authorise(PUSHED, FACTS, Policy(events))
        assert isinstance(answer, Ignored)
        assert reason in answer.reason
        assert isinstance(authorise(ASKED, FACTS, Policy(events)), Job)

    @pytest.mark.parametrize(("events", "facts"), [
        (Events(drafts=True), pull(draft=True)), (Events(bots=True), pull(bot=True)),
        (Events(paths=("models/*",)), FACTS), (Events(), replace(FACTS, changed=None)),
        (Events(), replace(FACTS, commits=(Commit("Fix"), Commit(with_key("perf", "a" * 64))))),
        (Events(), replace(FACTS, commits=(Commit("Merge trunk", merge=True),))),
        (Events(), replace(FACTS, commits=(Commit("quotes KernelOPT-Key: 1\n\nbelow"),))),
    ])
    def test_what_lets_it_through(self, events: Events, facts: Facts) -> None:
        assert isinstance(authorise(PUSHED, facts, Policy(events)), Job)

    def test_a_path_filter_without_paths_stops(self) -> None:
        answer = authorise(PUSHED, replace(FACTS, changed=None), Policy(Events(paths=("*.py",))))
        assert isinstance(answer, Ignored)


class TestPermission:
    @pytest.mark.parametrize("permission", [None, "none", "read", "triage"])
    @pytest.mark.parametrize("job", [
        ASKED, replace(ASKED, operation="answer", answer="text"), replace(ASKED, operation="status"),
        replace(ASKED, operation="cancel")])
    def test_a_stranger_gets_a_reaction_and_no_word(self, permission: Any, job: Job) -> None:
        answer = authorise(job, replace(FACTS, permission=permission), POLICY)
        assert isinstance(answer, Reply)
        assert (answer.text, answer.reaction) == ("", "confused")
        assert ("cannot be read" if permission is None else f"has the permission {permission}") in answer.reason

    @pytest.mark.parametrize("permission", [None, "read"])
    def test_a_label_needs_it_too(self, permission: Any) -> None:
        assert isinstance(authorise(LABELLED, replace(WITH_LABEL, permission=permission), POLICY), Ignored)
        assert isinstance(authorise(LABELLED, WITH_LABEL, POLICY), Job)

    def test_a_label_that_was_removed_meanwhile(self) -> None:
        answer = authorise(LABELLED, FACTS, POLICY)
        assert isinstance(answer, Ignored)
        assert "label kernelopt was removed" in answer.reason

    def test_opting_out_needs_none(self) -> None:
        job = on_pull_request(LABELLED, POLICY, label="no-kernelopt")
        assert isinstance(job, Job)
        answer = authorise(job, pull(labels=("no-kernelopt",)), POLICY)
        assert isinstance(answer, Job)
        assert answer.operation == "cancel"

    def test_the_least_is_configurable(self) -> None:
        policy = Policy(commands=Commands(permission="maintain"))
        assert isinstance(authorise(ASKED, FACTS, policy), Reply)
        assert isinstance(authorise(ASKED, replace(FACTS, permission="admin"), policy), Job)

    @pytest.mark.parametrize(("answer", "permission"), [
        ({"permission": "write", "role_name": "maintain"}, "maintain"),
        ({"permission": "read", "role_name": "triage"}, "triage"),
        ({"permission": "write", "role_name": "release-engineer"}, "write"),
        ({"permission": "none", "role_name": ""}, "none"),
        ({"permission": "admin"}, "admin"),
        ({"permission": True}, None), ({"message": "Not Found"}, None), ([], None), (None, None), ("admin", None)])
    def test_what_the_forge_answers(self, answer: Any, permission: Any) -> None:
        assert permission_in(answer) == permission

    @given(st.sampled_from(LEVELS), st.sampled_from(LEVELS))
    def test_levels_are_ordered(self, permission: Any, least: Any) -> None:
        assert reaches(permission, least) == (LEVELS.index(permission) >= LEVELS.index(least))


class TestCommands:
    def test_help_and_mistakes_are_answered(self) -> None:
        mistake = authorise(replace(ASKED, operation="answer", command=None, answer="no"), FACTS, POLICY)
        assert mistake == Reply("no", "confused", "the command was not understood", 12, 5)
        helped = authorise(replace(ASKED, operation="answer", command=Command("help"), answer="so"), FACTS, POLICY)
        assert isinstance(helped, Reply)
        assert (helped.text, helped.reaction) == ("so", "hooray")

    @pytest.mark.parametrize(("job", "facts", "words"), [
        (ASKED, pull(closed=True), "Pull request #12 is closed."),
        (ASKED, pull(labels=("no-kernelopt",)), "has the label no-kernelopt"),
        (ASKED, pull(head_ref="kernelopt-pr-3"), "KernelOPT's own"),
        (ASKED, replace(FACTS, pull_request=None), "cannot be read"),
        (ASKED, replace(FACTS, commands_today=10), "commands.a_day is 10"),
        (asked(sha=NEW), FACTS, f"head commit is {HEAD}, not {NEW}"),
        (asked(budget_s=3601.0), FACTS, "--budget may be 60m at most"),
        (asked(max_cost=5.01), FACTS, "--max-cost may be 5.00 at most"),
    ])
    def test_what_is_refused_with_a_word(self, job: Job, facts: Facts, words: str) -> None:
        answer = authorise(job, facts, POLICY)
        assert isinstance(answer, Reply)
        assert words in answer.text
        assert answer.reaction == "confused"

    @pytest.mark.parametrize("facts", [pull(draft=True), pull(bot=True), pull(title="[skip kernelopt]"),
                                       replace(FACTS, runs_today=99), replace(FACTS, commits=None)])
    def test_a_person_may_ask_where_nothing_runs_by_itself(self, facts: Facts) -> None:
        assert isinstance(authorise(asked(sha=HEAD[:7]), facts, POLICY), Job)

    def test_ours_can_be_verified(self) -> None:
        job = replace(ASKED, operation="verify", command=Command("verify"))
        assert isinstance(authorise(job, pull(head_ref="kernelopt-pr-3"), POLICY), Job)

    @pytest.mark.parametrize("operation", ["status", "cancel"])
    def test_what_executes_nothing_works_on_closed_ones(self, operation: Any) -> None:
        assert isinstance(authorise(replace(ASKED, operation=operation), pull(closed=True), POLICY), Job)


class TestForks:
    facts = replace(FACTS, pull_request=FORK)

    def test_by_the_full_commit_on_an_ephemeral_runner_for_a_report(self) -> None:
        job = authorise(asked(sha=HEAD), self.facts, EPHEMERAL)
        assert isinstance(job, Job)
        assert job.report_only
        assert job.is_fork

    @pytest.mark.parametrize(("job", "policy", "words"), [
        (asked(sha=HEAD), POLICY, "runner.ephemeral"),
        (asked(), EPHEMERAL, f"--sha {HEAD}"),
        (asked(sha=HEAD[:39]), EPHEMERAL, f"--sha {HEAD}"),
        (asked(sha=NEW), EPHEMERAL, "not 333"),
        (replace(asked(), operation="verify", command=Command("verify")), EPHEMERAL, "--sha"),
    ])
    def test_not_otherwise(self, job: Job, policy: Policy, words: str) -> None:
        answer = authorise(job, self.facts, policy)
        assert isinstance(answer, Reply)
        assert words in answer.text

    @pytest.mark.parametrize("job", [PUSHED, LABELLED, replace(PUSHED, action="opened")])
    def test_never_by_an_event(self, job: Job) -> None:
        labelled = replace(self.facts, pull_request=replace(FORK, labels=("kernelopt",)))
        assert isinstance(authorise(job, labelled, EPHEMERAL), Ignored)
        assert isinstance(recheck(replace(job, pull_request=FORK), labelled, EPHEMERAL), Ignored)

    def test_a_branch_called_like_ours_makes_no_fork_ours(self) -> None:
        facts = replace(self.facts, pull_request=replace(FORK, head_ref="kernelopt-pr-3"))
        assert isinstance(authorise(asked(sha=HEAD), facts, EPHEMERAL), Job)


class TestClosing:
    closing = replace(PUSHED, action="closed", operation="close")

    def test_it_needs_no_head(self) -> None:
        assert isinstance(authorise(self.closing, pull(closed=True, head_sha=NEW), POLICY), Job)

    def test_reopened_meanwhile(self) -> None:
        answer = authorise(self.closing, FACTS, POLICY)
        assert isinstance(answer, Ignored)
        assert "open again" in answer.reason


class TestBranches:
    push = Job("push", "", "octo-org/models", HEAD, BASE, None, "trunk", source_branch="trunk")
    sweep = Job("schedule", "", "octo-org/models", HEAD, HEAD, None, "trunk", source_branch="trunk", sweep=True)
    facts = Facts(branch_sha=HEAD, changed=("models/net.py",))

    def test_a_push(self) -> None:
        assert authorise(self.push, self.facts, POLICY) == replace(self.push, wait_s=300.0)
        assert recheck(self.push, self.facts, POLICY) is None

    @pytest.mark.parametrize(("sha", "reason"), [
        (None, "cannot be read"), ("", "was deleted"), (NEW, "moved from 1111")])
    def test_the_branch_meanwhile(self, sha: str | None, reason: str) -> None:
        facts = replace(self.facts, branch_sha=sha)
        for answer in (authorise(self.push, facts, POLICY), recheck(self.push, facts, POLICY)):
            assert isinstance(answer, Ignored)
            assert reason in answer.reason

    def test_a_sweep_goes_on_where_the_branch_moved(self) -> None:
        facts = Facts(branch_sha=NEW)
        assert authorise(self.sweep, facts, POLICY) == self.sweep
        assert recheck(self.sweep, facts, POLICY) is None
        assert isinstance(recheck(self.sweep, Facts(branch_sha=""), POLICY), Ignored)

    def test_limits_of_pushes_and_of_dispatched_commands(self) -> None:
        assert isinstance(authorise(self.push, replace(self.facts, runs_today=3), POLICY), Ignored)
        job = replace(self.sweep, event="workflow_dispatch", command=Command("optimize", sha=NEW))
        assert isinstance(authorise(job, self.facts, POLICY), Ignored)


class TestRecheck:
    bound = replace(ASKED, head_sha=HEAD, base_sha=BASE, pull_request=PULL, source_branch="attention")
    facts = Facts(pull_request=PULL, permission="write")

    @pytest.mark.parametrize("job", [PUSHED, bound])
    def test_nothing_changed(self, job: Job) -> None:
        assert recheck(job, self.facts, POLICY) is None

    @pytest.mark.parametrize("job", [PUSHED, bound, LABELLED])
    @pytest.mark.parametrize(("changes", "reason"), [
        ({"head_sha": NEW}, "moved from 1111"), ({"closed": True}, "is closed"), ({"base_ref": "next"}, "is next now"),
        ({"labels": ("kernelopt", "no-kernelopt")}, "has the label no-kernelopt"),
        ({"fork": True}, "comes from a fork")])
    def test_what_stops_all(self, job: Job, changes: dict[str, Any], reason: str) -> None:
        now = replace(self.facts, pull_request=replace(PULL, **{"labels": ("kernelopt",), **changes}))
        answer = recheck(job, now, POLICY)
        assert isinstance(answer, Ignored)
        assert reason in answer.reason

    def test_permission_gone(self) -> None:
        for permission in (None, "read"):
            assert isinstance(recheck(self.bound, replace(self.facts, permission=permission), POLICY), Ignored)
        assert recheck(PUSHED, replace(self.facts, permission=None), POLICY) is None

    def test_label_removed(self) -> None:
        labelled = replace(self.facts, pull_request=WITH_LABEL.pull_request)
        assert recheck(LABELLED, labelled, POLICY) is None
        assert isinstance(recheck(LABELLED, self.facts, POLICY), Ignored)

    def test_a_draft_again(self) -> None:
        draft = replace(self.facts, pull_request=replace(PULL, draft=True))
        assert isinstance(recheck(PUSHED, draft, POLICY), Ignored)
        assert recheck(self.bound, draft, POLICY) is None

    def test_unreadable(self) -> None:
        assert isinstance(recheck(PUSHED, Facts(), POLICY), Ignored)

    def test_a_fork_needs_all_again(self) -> None:
        job = authorise(asked(sha=HEAD), replace(FACTS, pull_request=FORK), EPHEMERAL)
        assert isinstance(job, Job)
        facts = replace(self.facts, pull_request=FORK)
        assert recheck(job, facts, EPHEMERAL) is None
        assert isinstance(recheck(job, facts, POLICY), Ignored)
        assert isinstance(recheck(job, replace(facts, pull_request=replace(FORK, head_sha=NEW)), EPHEMERAL), Ignored)


FLAGS = st.booleans()


@given(st.builds(
    PullRequest, number=st.just(12), title=st.sampled_from(["x", "[skip kernelopt]"]), author=st.just("octocat"),
    head_ref=st.sampled_from(["attention", "kernelopt-pr-1"]), head_sha=st.sampled_from([HEAD, NEW]),
    base_ref=st.just("trunk"), base_sha=st.just(BASE), fork=FLAGS, draft=FLAGS, closed=FLAGS, bot=FLAGS,
    labels=st.sampled_from([(), ("no-kernelopt",), ("kernelopt",)])),
    st.sampled_from([None, *LEVELS]), st.sampled_from([PUSHED, LABELLED, ASKED, asked(sha=HEAD)]), FLAGS)
def test_what_is_authorised_is_safe_and_passes_recheck_at_once(
        found: PullRequest, permission: Any, job: Job, ephemeral: bool) -> None:
    policy = Policy(runner=Runner(ephemeral=ephemeral))
    facts = replace(FACTS, pull_request=found, permission=permission)
    answer = authorise(job, facts, policy)
    if isinstance(answer, Job):
        assert not found.closed
        assert "no-kernelopt" not in found.labels
        assert answer.head_sha == found.head_sha
        if answer.asked_by_person:
            assert permission in ("write", "maintain", "admin")
        if found.fork:
            assert ephemeral
            assert answer.report_only
            assert answer.command is not None
            assert answer.command.sha == found.head_sha
        assert recheck(answer, facts, policy) is None
    else:
        assert answer.reason


@given(st.sampled_from([
    PUSHED, LABELLED, ASKED, replace(PUSHED, operation="close", action="closed"), replace(ASKED, operation="status"),
    replace(ASKED, operation="answer", answer="x"), TestBranches.push, TestBranches.sweep]))
def test_no_other_facts_are_needed(job: Job) -> None:
    whole = replace(WITH_LABEL, branch_sha=HEAD)
    if job.operation == "close":
        whole = pull(closed=True)
    unread = Facts(None, None, None, None, None, frozenset(), None, None)
    answer = authorise(job, whole, POLICY)
    assert not isinstance(answer, Ignored)
    assert authorise(job, replace(unread, **{n: getattr(whole, n) for n in needed(job)}), POLICY) == answer
    for name in needed(job) - {"opted_out", "changed"}:
        assert authorise(job, replace(whole, **{name: None}), POLICY) != answer
    if isinstance(answer, Job):
        again = replace(unread, **{n: getattr(whole, n) for n in needed(answer, again=True)})
        assert recheck(answer, again, POLICY) is None


def test_relevant_paths() -> None:
    policy = Policy(Events(paths=("models/*",), ignore_paths=("*_test.py",)))
    assert rules.relevant(["models/a/net.py", "models/net_test.py", "README.md"], policy) == ("models/a/net.py",)
