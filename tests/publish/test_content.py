from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.content import branch_name, gone, publication
from kernelopt_bot.publish.key import content_key, key_of
from kernelopt_bot.publish.publication import Publication
from kernelopt_bot.report.build import build
from kernelopt_bot.report.markdown import BODY_LIMIT
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.targets.wire import Wiring


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "kernelopt_kernels" / "transformer_block"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def optimize(model): ...\n")
    (folder / "manifest.json").write_text("{}\n")
    return tmp_path


def made(run: RunResult, root: Path, **options: object) -> Publication:
    p = publication(run, build(run), root, base_ref="faster-models", base_sha="a" * 40, **options)  # type: ignore[arg-type]
    assert p is not None
    return p


def test_first_screen_has_the_gain_the_change_and_the_switch(run: RunResult, root: Path) -> None:
    p = made(run, root)
    screen = p.body.split("---")[0]
    assert screen.startswith(
        "`transformer_block`: **1.210x** (95% interval 1.190x to 1.240x) against the best applicable baseline"
    )
    assert "1.452 ms before, 1.200 ms after, latency, cold cache" in screen
    noise = run.results[0].noise
    assert noise is not None
    assert f"(A/A): {noise.speedup:.3f}x ({noise.low:.3f}x to {noise.high:.3f}x)." in screen
    assert "- `transformer_block`: " in screen and "kernels replaced by" in screen
    assert "from kernelopt_kernels.transformer_block import optimize\nmodel = optimize(model)" in screen
    assert "KERNELOPT_DISABLE=1" in screen
    assert "`kernelopt_kernels/transformer_block`" in screen
    assert "# KernelOPT: 1 of 3 targets faster" in p.body
    assert len(p.body) <= BODY_LIMIT


def test_files_branch_and_message(run: RunResult, root: Path) -> None:
    p = made(run, root, labels=("perf",), draft=True)
    assert (p.branch, p.base_ref, p.base_sha, p.labels, p.draft) == (
        "kernelopt-pr-7",
        "faster-models",
        "a" * 40,
        ("perf",),
        True,
    )
    assert sorted(p.files) == [
        "kernelopt_kernels/transformer_block/__init__.py",
        "kernelopt_kernels/transformer_block/manifest.json",
    ]
    assert p.replaced == ("kernelopt_kernels/transformer_block/kernels",)
    assert p.title == "perf: verified faster kernels for transformer_block"
    lines = p.commit_message.splitlines()
    assert lines[0] == p.title
    assert (
        "transformer_block: 1.210x (95% interval 1.190x to 1.240x) against max-autotune (latency, cold cache)" in lines
    )
    assert key_of(p.commit_message) == content_key([run.results[0]])


def test_nothing_faster_is_nothing_to_publish(run: RunResult, root: Path) -> None:
    slow = replace(run, results=run.results[1:])
    assert publication(slow, build(slow), root, base_ref="x", base_sha="y") is None


def test_a_missing_or_forged_artifact_is_refused(run: RunResult, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        made(run, tmp_path)
    full = run.results[0]
    outside = replace(run, results=(replace(full, artifact="../../etc"),))
    with pytest.raises(InputError):
        made(outside, tmp_path)


def test_the_body_keeps_to_the_limit_with_the_report_cut(run: RunResult, root: Path) -> None:
    many = replace(run, results=run.results * 40)
    p = made(many, root)
    assert BODY_LIMIT - 5000 < len(p.body) <= BODY_LIMIT
    assert "shortened to fit" in p.body
    assert "never rewrites it" in p.body


def test_subject_and_note(run: RunResult, root: Path) -> None:
    p = made(run, root, subject="speed: {targets} {{x}}", note="No checks start here: <b>@team</b>")
    assert p.title == "speed: transformer_block {x}"
    assert "No checks start here: &lt;b&gt;@&#8203;team&lt;/b&gt;" in p.body


def test_branch_names_are_flat() -> None:
    by_hand = RunResult((), "kernelopt optimize x", head_sha="0123456789abcdef")
    assert branch_name(by_hand) == "kernelopt-0123456789ab"
    assert branch_name(replace(by_hand, pull_request=12), "bot-") == "bot-pr-12"
    assert branch_name(RunResult((), "kernelopt optimize x")) == "kernelopt-run"


def test_whom_it_comes_from_and_goes_to(run: RunResult, root: Path) -> None:
    url = "https://github.com/acme/kernels/actions/runs/1"
    p = made(run, root, reviewers=("lee",), author="kim", whole_report=url)
    assert (p.source, p.reviewers, p.author) == (7, ("lee",), "kim")
    assert f"<{url}>" in p.body
    assert "whole report" not in made(run, root, whole_report="javascript:x").body
    again = made(run, root, base_may_move=True)
    assert (again.branch, again.source) == ("kernelopt-pr-7", None)


def test_a_sweep_has_one_flat_branch_a_branch(run: RunResult, root: Path) -> None:
    assert made(run, root, sweep="main").branch == "kernelopt-sweep-main"
    assert made(run, root, sweep="main").source is None
    names = {branch_name(run, sweep=b) for b in ("team/x", "team-x", "team.x", "team/y")}
    assert len(names) == 4
    assert all(re.fullmatch(r"kernelopt-sweep-[A-Za-z0-9_-]+", n) for n in names)


def test_a_targets_name_mentions_nobody(run: RunResult, root: Path) -> None:
    first = run.results[0]
    named = replace(first, target=replace(first.target, name="@kim fixes #12"))
    p = made(replace(run, results=(named, *run.results[1:])), root)
    for text in (p.title, p.commit_message):
        assert "@kim" not in text
        assert "#12" not in text
        assert "kim" in text


def test_only_a_whole_run_without_gain_ends_what_an_earlier_one_offered(run: RunResult) -> None:
    one = run.results[0]
    assert gone(run) is None, "something is faster"
    slower = replace(one, trials=(), headline=None, stitched=(), artifact="", limit="", unreached=())
    whole = replace(run, results=(slower,), stopped="")
    withdrawal = gone(whole)
    assert withdrawal is not None
    assert (withdrawal.branch, withdrawal.why) == ("kernelopt-pr-7", "gain gone")
    assert one.target.name in withdrawal.detail
    swept = gone(whole, sweep="main")
    assert swept is not None and swept.branch == "kernelopt-sweep-main"
    for nothing_proved in (
        replace(whole, results=()),
        replace(whole, stopped="time"),
        replace(whole, results=(replace(slower, error="no GPU"),)),
        replace(whole, results=(slower, replace(slower, interrupted=True))),
        replace(whole, results=(replace(slower, limit="10 minutes"),)),
        replace(whole, results=(replace(slower, unreached=("kernel",)),)),
    ):
        assert gone(nothing_proved) is None


def test_a_call_site_that_was_changed_comes_with_the_artifact(run: RunResult, root: Path) -> None:
    wiring = Wiring({"app.py": b"changed"}, (("encoder", "app.py calls optimize now: lines 1 and 4 @all"),))
    p = made(run, root, wiring=wiring)
    assert p.files["app.py"] == b"changed" and "lines 1 and 4" in p.body and " @all" not in p.body
    taken = next(iter(p.files.keys() - {"app.py"}))
    with pytest.raises(InputError, match="lies in an artifact"):
        made(run, root, wiring=Wiring({taken: b""}, ()))
    with pytest.raises(InputError, match="may not be published"):
        made(run, root, wiring=Wiring({".github/workflows/x.py": b""}, ()))
