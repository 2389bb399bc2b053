from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kernelopt_bot.report import markdown
from kernelopt_bot.report.blocks import Block, Details, Report
from kernelopt_bot.report.build import build
from kernelopt_bot.report.machine import render_json
from kernelopt_bot.report.markdown import beside
from kernelopt_bot.report.terminal import print_report
from kernelopt_bot.search.result import RunResult, TargetResult, Trial
from tests.report import results


def render(*arguments: Any, **more: Any) -> str:
    """Figures are held together by spaces that do not break."""
    return markdown.render(*arguments, **more).replace("\u00a0", " ")


def one(result: TargetResult, **changes: object) -> RunResult:
    return RunResult((replace(result, **changes),), "kernelopt optimize models/block.py")  # type: ignore[arg-type]


def all_renderings(report: Report) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=100))
    return render(report, limit=10**9) + out.getvalue() + render_json(report.data)


def headings(text: str) -> list[str]:
    return re.findall(r"^#{1,3} (.*)$", text, re.MULTILINE)


def test_what_matters_comes_first_and_in_order(full: TargetResult) -> None:
    text = render(build(one(full)))
    assert headings(text) == [
        "KernelOPT: 1 of 1 target faster",
        "`transformer_block`: class `Block` in `models/block.py`",
        "Against each baseline",
        "Gain per lever",
        "Kernels",
        "Verdicts of the gates",
        "What was tried",
        "First call",
        "What this covers",
        "This run",
    ]
    first = text.split("\n\n")[2]
    assert first.startswith("**1.210x** faster than the best applicable baseline, `max-autotune`")
    for said in (
        "95% interval of 1.190x to 1.240x",
        "1.452 ms before, 1.200 ms after",
        "latency, cold cache",
        "60 interleaved",
        "37 candidates",
        "Inference only",
    ):
        assert said in first


def test_baselines_come_in_a_fixed_order_with_intervals(full: TargetResult) -> None:
    text = render(build(one(full)))
    rows = re.findall(r"^\| `([\w-]+)` \| (\S+) \| (\S+ to \S+) \|.*\| (\w+, \w+ cache) \|$", text, re.MULTILINE)
    assert [r[0] for r in rows] == ["eager", "default", "default", "reduce-overhead", "max-autotune"]
    assert "| A/A (baseline against itself) | 1.002x | 0.991x to 1.013x |" in text


def test_every_model_level_gain_has_its_interval(run: RunResult) -> None:
    """`1.234x` appears only beside an interval, in the diagnostic column, or as the chart's line of no change."""
    text = render(build(run), limit=10**9)
    for line in text.splitlines():
        if re.search(r"\d\.\d{3}x", line):
            assert re.search(r"\d\.\d{3}x to \d\.\d{3}x|no interval|no change", line), line


def test_the_two_lines_to_add(full: TargetResult) -> None:
    text = render(build(one(full)))
    assert "Wired: no." in text
    assert "from kernelopt_kernels.transformer_block import optimize\nmodel = optimize(model)" in text
    assert "KERNELOPT_DISABLE=1" in text


def test_nothing_adopted_is_said_with_the_noise(pretended: TargetResult) -> None:
    text = render(build(one(pretended)))
    assert headings(text)[0] == "KernelOPT: 0 of 1 target faster"
    assert "**Nothing was adopted.** None of the 37 candidates tried" in text
    assert "(A/A) gave 1.000x (95% interval 0.930x to 1.080x) over 20 interleaved pairs" in text
    assert "too noisy" in text
    assert "| pass | pass | pass | not measured |" in text
    assert "not measured: no GPU" in text
    assert "faster than" not in text
    assert "Wired" not in text


def test_a_target_that_failed_says_why_and_what_to_do(failed: TargetResult) -> None:
    text = render(build(one(failed)))
    assert "could not be handled" in text
    assert "ModuleNotFoundError: einops" in text
    assert "what to do: install it" in text
    assert "Nothing was adopted" not in text


def test_a_slower_or_unclear_result_is_never_called_faster(full: TargetResult) -> None:
    assert full.headline is not None
    for low, high, said in ((0.90, 0.95, "slower"), (0.98, 1.05, "no different, within the interval")):
        run = one(full, headline=replace(full.headline, speedup=(low + high) / 2, low=low, high=high))
        text = render(build(run))
        assert headings(text)[0] == "KernelOPT: 0 of 1 target faster"
        assert said in text.split("\n\n")[2]


def test_pieces_without_a_confirmed_figure_claim_nothing(full: TargetResult) -> None:
    report = build(one(full, headline=None))
    assert "No gain is claimed" in render(report)
    assert report.data["targets"][0]["faster"] is False


def test_where_candidates_stopped_is_counted(full: TargetResult) -> None:
    text = render(build(one(full)))
    assert "37 candidates were tried, 2 adopted, 35 not." in text
    assert "| `kernel` | 3 | 1 | 1 | 0 | 0 | 0 | 1 |" in text
    assert "| `dispatch` | 1 | 0 | 0 | 0 | 1 | 0 | 0 |" in text
    assert "family cancelling: ratio 41.2 above 2.0" in text


def test_equal_steps_are_one_row_and_follow_their_replacement(full: TargetResult) -> None:
    text = render(build(one(full)))
    assert (
        "| `triton_per_fused_native_layer_norm_0` | 2 | 20.50 µs | 10.80 µs | 9.100 µs | 2.25 | 28.8% "
        "| `persistent reduction` |"
    ) in text
    assert "| `extern_kernels.addmm` | 1 | 101.0 µs | unchanged | 80.00 µs | 1.26 | 71.2% |  |" in text
    assert "One compiled call takes 180.0 µs, of which the steps account for 141.9 µs" in text


def test_steps_that_add_up_to_more_than_the_call_are_only_a_hint(full: TargetResult) -> None:
    assert full.profile is not None
    text = render(build(one(full, profile=replace(full.profile, call_us=100.0, launch_gap=0.0))))
    assert "as a hint only" in text
    assert "waits for the host" not in text


def test_steps_on_other_sizes_have_rows_of_their_own(full: TargetResult) -> None:
    assert full.profile is not None
    first, *rest = full.profile.steps
    other = replace(full.profile, steps=(first, *rest, replace(rest[0], step=3, bytes=1, time_us=None)))
    text = render(build(one(full, profile=other)))
    assert "| `extern_kernels.addmm` | 1 | not measured | unchanged | 80.00 µs |  | not measured |  |" in text


def test_a_run_that_stopped_and_one_without_targets(run: RunResult) -> None:
    text = render(build(replace(run, stopped="the GPU went away")))
    assert "stopped early" in headings(text)[0]
    assert "The run ended early: the GPU went away. What is reported below was verified" in text
    assert "nothing that the change touches" in render(build(RunResult((), "kernelopt run")))


def test_pictures_are_files_or_text(run: RunResult) -> None:
    report = build(run)
    assert sorted(report.files) == sorted(
        f"{name}-{mode}.svg"
        for name in ("transformer_block-gain", "transformer_block-kernels", "pretended-kernels")
        for mode in ("light", "dark")
    )
    with_files = render(report, picture=beside)
    for name in report.files:
        assert f'"{name}"' in with_files
    assert "svg" not in render(report)
    assert "against max-autotune" in render(report)


def optional(result: TargetResult) -> Iterator[tuple[str, object]]:
    for f in fields(result):
        value = getattr(result, f.name)
        if f.name == "target":
            continue
        if isinstance(value, tuple):
            yield f.name, ()
        elif isinstance(value, str):
            yield f.name, ""
        elif isinstance(value, dict):
            yield f.name, {}
        else:
            yield f.name, None


@pytest.mark.parametrize(("name", "empty"), list(optional(results.full_result())))
def test_any_field_may_be_missing(full: TargetResult, name: str, empty: object) -> None:
    assert all_renderings(build(one(full, **{name: empty})))
    assert all_renderings(build(one(full, **{"error": "it broke", name: empty})))


@given(st.sets(st.sampled_from([name for name, _ in optional(results.full_result())])))
@settings(max_examples=15, deadline=None)
def test_any_fields_may_be_missing_together(names: set[str]) -> None:
    full = results.full_result()
    empty = dict(optional(full))
    text = render(build(one(full, **{n: empty[n] for n in names})))
    assert text.startswith("# KernelOPT: ")


HOSTILE = "</details><img src=x>@team #1 `|` \n\n# Heading\n::error::x \x1b[31m\u202e [a](http://evil.example)"


def hostile(full: TargetResult) -> TargetResult:
    trials = tuple(
        replace(
            t,
            note=HOSTILE,
            candidate=replace(t.candidate, technique=HOSTILE, rationale=HOSTILE, id=f"{HOSTILE}{i}"),
            verdicts=tuple(replace(v, reason=HOSTILE, evidence={HOSTILE: HOSTILE}) for v in t.verdicts),
        )
        for i, t in enumerate(full.trials)
    )
    return replace(
        full,
        trials=trials,
        target=replace(full.target, path=HOSTILE, entry=HOSTILE, inputs=HOSTILE),
        covered=(HOSTILE,),
        error=HOSTILE,
        secret=HOSTILE,
        environment={HOSTILE: HOSTILE},
        inputs_origin=HOSTILE,
        agents=(HOSTILE,),
        artifact=HOSTILE,
        not_applicable={HOSTILE: HOSTILE},
        peak_memory={HOSTILE: 1},
        against=tuple(replace(c, baseline=HOSTILE) for c in full.against),
    )


def test_hostile_text_is_only_text(full: TargetResult) -> None:
    report = build(RunResult((hostile(full),), HOSTILE, ((HOSTILE, HOSTILE),), repository=HOSTILE, stopped=HOSTILE))
    text = render(report, limit=10**9)
    outside = re.sub(r"^(`{3,})\w*\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert headings(outside)[-1] == "This run"
    assert "Heading" not in headings(outside)
    without_code = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"<code>.*?</code>", "", outside))
    assert "<img" not in without_code
    assert "@team" not in without_code
    assert without_code.count("<details>") == without_code.count("</details>")
    for char in ("\x1b", "\u202e"):
        assert char not in text
        assert char not in render_json(report.data)
    assert b"<img" not in b"".join(report.files.values())


def test_the_terminal_sends_no_commands(full: TargetResult) -> None:
    report = build(RunResult((hostile(full),), HOSTILE))
    out = io.StringIO()
    print_report(report, Console(file=out, width=120, force_terminal=False))
    assert "\x1b" not in out.getvalue()
    assert not [line for line in out.getvalue().splitlines() if line.strip().startswith("::")]


def test_the_terminal_leaves_the_sources_out(full: TargetResult) -> None:
    out = io.StringIO()
    print_report(build(one(full)), Console(file=out, width=120))
    assert "@triton.jit" not in out.getvalue()
    assert "model = optimize(model)" in out.getvalue()


def walk(blocks: tuple[Block, ...]) -> Iterator[Block]:
    for b in blocks:
        yield b
        if isinstance(b, Details):
            yield from walk(b.blocks)


def test_the_same_result_gives_the_same_report(run: RunResult) -> None:
    one, two = build(run), build(run)
    assert one == two
    assert list(walk(one.blocks)) == list(walk(two.blocks))


@pytest.mark.parametrize(("trials", "says"), [
    ((), "before any candidate was tried (loading, capture and profile count too)"),
    (results.full_result().trials, "so that not every lever was reached"),
])
def test_a_budget_that_ended_the_search_is_said_first(full: TargetResult, trials: tuple[Trial, ...], says: str) -> None:
    report = build(one(full, limit="the wall time of 1 s is spent", unreached=("launch", "kernel"), trials=trials))
    out = io.StringIO()
    print_report(report, Console(file=out, width=100))
    for text in (render(report), out.getvalue()):
        head = " ".join(re.sub(r"[│>*`]|\\", "", text.split("Against each baseline")[0]).split())
        assert f"The budget ended the search early: the wall time of 1 s is spent, {says}" in head, head
        assert "Not searched: launch, kernel. Give it more: --budget" in head
    assert "ended the search early" not in all_renderings(build(one(full)))
