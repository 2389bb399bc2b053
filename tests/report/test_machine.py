from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kernelopt_bot.contract.candidate import KernelCandidate, Plan
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.report.build import build
from kernelopt_bot.report.machine import machine_data, render_json
from kernelopt_bot.report.markdown import render
from kernelopt_bot.search.result import RunResult, TargetResult, Trial
from tests.report import results

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())


def checked(run: RunResult) -> dict[str, Any]:
    """What a reader gets from the file, valid by the published schema."""
    data: dict[str, Any] = json.loads(render_json(machine_data(run)))
    errors = [f"{e.json_path}: {e.message[:200]}" for e in Draft202012Validator(SCHEMA).iter_errors(data)]
    assert errors == []
    return data


def one(result: TargetResult) -> RunResult:
    return RunResult((result,), "kernelopt optimize models/block.py")


def test_the_schema_is_one_and_is_strict(run: RunResult) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    data = checked(run)
    for broken in ({**data, "more": 1}, {k: v for k, v in data.items() if k != "noise"}, {**data, "schema": 2}):
        assert not Draft202012Validator(SCHEMA).is_valid(broken)
    data["adopted"][0]["verdicts"].pop()
    assert not Draft202012Validator(SCHEMA).is_valid(data)


def test_sets_of_levers_and_the_kind_of_an_error(full: TargetResult) -> None:
    gain = full.against[0]
    broken = replace(full, sets={"kernel+dispatch": gain}, error="out of memory", error_kind="out_of_memory")
    data = checked(one(broken))
    assert data["sets"] == [{"target": full.target.name, "levers": ["kernel", "dispatch"], "gain": asdict(gain)}]
    assert data["targets"][0]["error_kind"] == "out_of_memory"


def test_what_agents_did_is_said_and_read_back(full: TargetResult) -> None:
    said = ("agents (llm): 7 candidates in 2 rounds, 1 passed the gates of the search; 2 rounds were searched",
            "llm: the budget is spent (0.50 USD); the search went on without")
    run = one(replace(full, agents=said))
    assert checked(run)["targets"][0]["agents"] == list(said)
    assert all(line in render(build(run), limit=10**9) for line in said)
    assert checked(one(full))["targets"][0]["agents"] == []


def test_adopted_pieces_have_lever_gain_and_four_verdicts(full: TargetResult) -> None:
    adopted = checked(one(full))["adopted"]
    assert [(a["id"], a["lever"], a["technique"]) for a in adopted] == [
        ("k1", "kernel", "persistent reduction"),
        ("o1", "launch", "CUDA graphs"),
    ]
    for a in adopted:
        assert [v["gate"] for v in a["verdicts"]] == ["static", "correctness", "model", "performance"]
    assert [v["status"] for v in adopted[0]["verdicts"]] == ["pass"] * 4
    assert adopted[0]["gain"]["lever"]["speedup"] == 1.08
    assert adopted[0]["gain"]["model"] == {
        "baseline": "max-autotune",
        "candidate": "candidate",
        "metric": "latency",
        "cache": "cold",
        "speedup": 1.21,
        "low": 1.19,
        "high": 1.24,
        "baseline_ms": pytest.approx(1.452),
        "candidate_ms": 1.2,
        "pairs": 60,
    }


def test_a_missing_verdict_is_never_a_pass(full: TargetResult) -> None:
    """`o1` has no verdict of gate 2; where the whole has one of gates 3 and 4, that answers, and says so."""
    trial = replace(full.trials[1], verdicts=full.trials[1].verdicts[:1])
    piece = checked(one(replace(full, trials=(trial,))))["adopted"][0]
    assert [(v["status"], v["scope"]) for v in piece["verdicts"]] == [
        ("pass", "piece"),
        ("not measured", "none"),
        ("pass", "stitched"),
        ("pass", "stitched"),
    ]


def test_gates_hold_every_candidate_furthest_first(pretended: TargetResult, full: TargetResult) -> None:
    (only,) = checked(one(pretended))["gates"]
    assert [v["status"] for v in only["verdicts"]] == ["pass", "pass", "pass", "not measured"]
    assert only["verdicts"][3]["reason"] == "no GPU"
    assert (only["adopted"], only["stopped_by"]) == (False, "performance")
    assert [g["id"] for g in checked(one(full))["gates"]] == ["k1", "k2", "k3", "o1", "o2"]


def test_a_verdict_can_be_repeated_from_it(full: TargetResult) -> None:
    data = checked(one(full))
    entry = data["gates"][0]
    assert entry["source"] == results.SOURCE
    assert Plan.from_json(entry["plan"]) == results.PLAN
    assert (entry["run_hash"], entry["graph"], entry["steps"]) == ("hash0", 0, [0])
    assert data["secret"] == {"transformer_block": "5ec2e7"}
    assert data["environment"]["transformer_block"]["gpu"]["capability"] == [9, 0]
    assert data["command"] == "kernelopt optimize models/block.py"


def test_sources_are_kept_for_the_furthest_only(full: TargetResult) -> None:
    many = tuple(Trial(results.kernel(f"k{i:03}"), results.passing()[: i % 3]) for i in range(120))
    gates = checked(one(replace(full, trials=many)))["gates"]
    assert len(gates) == 120
    assert sum(g["source"] is not None for g in gates) == 50
    assert all(len(g["verdicts"]) == 4 for g in gates)


def test_noise_baselines_levers_and_counts(full: TargetResult, pretended: TargetResult) -> None:
    data = checked(one(full))
    assert data["noise"] == [
        {"target": "transformer_block", "speedup": 1.002, "low": 0.991, "high": 1.013, "pairs": 60}
    ]
    assert {b["baseline"] for b in data["baselines"]} == {"eager", "default", "reduce-overhead", "max-autotune"}
    assert [(x["lever"], x["adopted"], x["gain"] is None) for x in data["levers"]] == [
        ("kernel", 1, False),
        ("dispatch", 0, True),
        ("launch", 1, False),
    ]
    assert data["rejected"][0]["stopped"] == {"static": 1, "correctness": 1, "model": 0, "performance": 0}
    assert data["spent"] == {"wall_s": 412.0, "device_s": 160.5, "candidates": 37}
    absent = checked(one(pretended))["baselines"]
    assert absent == [{"target": "transformer_block", "baseline": "max-autotune", "gain": None, "reason": "no GPU"}]


def test_failed_targets_and_empty_runs(failed: TargetResult) -> None:
    data = checked(one(failed))
    assert "einops" in data["targets"][0]["error"]
    assert data["adopted"] == data["gates"] == data["noise"] == []
    assert checked(RunResult((), "kernelopt run"))["spent"] == {"wall_s": 0, "device_s": 0, "candidates": 0}


def test_what_json_cannot_hold_becomes_text(full: TargetResult) -> None:
    evidence = {
        "worst": math.inf,
        "least": -math.inf,
        "none": math.nan,
        "odd": {3, 1, 2},
        "nested": [{"x": math.nan}],
        5: "\ud800",
        "object": Path,
    }
    trial = replace(full.trials[0], verdicts=(Verdict("static", Status.FAIL, "x", evidence),), adopted=False)
    found = checked(one(replace(full, trials=(trial,))))["gates"][0]["verdicts"][0]["evidence"]
    assert found == {
        "worst": "Infinity",
        "least": "-Infinity",
        "none": "NaN",
        "odd": [1, 2, 3],
        "nested": [{"x": "NaN"}],
        "5": "\ud800",
        "object": repr(Path),
    }


def test_it_is_deterministic(run: RunResult) -> None:
    assert render_json(machine_data(run)) == render_json(machine_data(run))
    assert isinstance(run.results[0].trials[0].candidate, KernelCandidate)
