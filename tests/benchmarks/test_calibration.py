"""k is the calibration's: the rule, and the default against every committed record."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.calibrate_k import choose, needs, one_digit
from benchmarks.products import measure, rounded
from kernelopt_bot.config import Config
from kernelopt_bot.gates.verdict import Status, Verdict

torch = pytest.importorskip("torch")
KEYS = {"command", "commit", "gpu", "driver", "versions", "date", "lane", "secrets", "precision", "rule", "interval",
        "ends", "separates", "k", "rows"}
RECORDS = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("calibration_*.json"))


def row(kind: str, rmse: float | None, largest: float | None, name: str = "") -> dict[str, Any]:
    return {"name": name or f"{kind} {rmse} {largest}", "kind": kind, "k_rmse": rmse, "k_max": largest}


def test_the_choice_lies_between_the_neediest_honest_and_the_weakest_adversary() -> None:
    chosen = choose([row("honest", 0.5, 2.0), row("honest", 0, 0), row("adversary", 200.0, 7.0),
                     row("adversary", 1.0, 50.0), row("adversary", None, 3.0), row("measured", 1.0, 1.0)])
    assert chosen["interval"] == [2.0, 50.0] and chosen["ends"] == ["honest 0.5 2.0", "adversary 1.0 50.0"]
    assert chosen["separates"] and chosen["k"] == 10.0
    assert choose([row("honest", 3.0, 0.0), row("adversary", 2.0, 1.0)])["k"] is None


def test_an_honest_case_that_no_k_accepts_is_an_error() -> None:
    with pytest.raises(ValueError, match="no k accepts broken"):
        choose([row("honest", None, 0.0, "broken"), row("adversary", 2.0, 1.0)])


@pytest.mark.parametrize(("value", "digit"), [(6.6, 6.0), (0.0437, 0.04), (10.0, 10.0), (99.0, 90.0), (3.0, 3.0)])
def test_one_digit_rounds_down(value: float, digit: float) -> None:
    assert one_digit(value) == pytest.approx(digit)


def test_needs_are_the_largest_over_families() -> None:
    def family(name: str, rmse: float | None, largest: float) -> dict[str, Any]:
        return {"family": name, "outputs": [{"name": "out", "least_k_rmse": rmse, "least_k_max": largest}]}

    def verdict(*families: dict[str, Any]) -> Verdict:
        return Verdict("correctness", Status.PASS, "", {"families": list(families)})

    found = needs(verdict(family("normal", 1.0, 4.0), family("zero", 2.0, 3.0)))
    assert found == {"k_rmse": 2.0, "k_max": 4.0, "k_rmse_at": "zero, out", "k_max_at": "normal, out"}
    assert needs(verdict(family("normal", None, 1.0), family("zero", 9.0, 0.0)))["k_rmse"] is None
    with pytest.raises(ValueError, match="it crashed"):
        needs(Verdict("correctness", Status.FAIL, "it crashed"))


def test_rounding_to_tf32_keeps_ten_bits() -> None:
    x = torch.tensor([1 + 2.0**-10, 1 + 2.0**-11, 1 + 2.0**-12, -1 - 2.0**-11])
    assert rounded(x).tolist() == [1 + 2.0**-10, 1 + 2.0**-10, 1.0, -1 - 2.0**-10]


def test_products_tell_tf32_from_fp32() -> None:
    rows = list(measure(torch.device("cpu"), (128,), 2.0))
    needed = {r["name"].split(",")[0]: max(r["k_rmse"], r["k_max"]) for r in rows if r["values"] == "normal"}
    assert needed["fp32 in 8 slices of k"] < 5 < 100 < needed["TF32"] < needed["bfloat16"]
    assert needed["three TF32 products"] < 5


def test_there_is_a_record() -> None:
    assert any(json.loads(p.read_text())["lane"] == "interpret" for p in RECORDS)


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: p.stem)
def test_the_default_k_separates_honest_from_dishonest_in_every_record(path: Path) -> None:
    record, gates = json.loads(path.read_text()), Config().gates
    assert set(record) == KEYS
    assert re.fullmatch(r"[0-9a-f]{40}", record["commit"])
    assert record["precision"] == {"m": gates.m, "m_half": gates.m_half}
    chosen = choose(record["rows"])
    assert {key: record[key] for key in chosen} == chosen
    low, high = chosen["interval"]
    assert low < gates.k < high
    assert sum(r["kind"] == "honest" for r in record["rows"]) >= 20
    assert sum(r["kind"] == "adversary" for r in record["rows"]) >= 16


@pytest.mark.skipif(not any("_cuda_" in p.name for p in RECORDS), reason="no record of a GPU yet")
def test_the_default_k_is_the_choice_over_all_records() -> None:
    rows = [r for p in RECORDS for r in json.loads(p.read_text())["rows"]]
    assert Config().gates.k == choose(rows)["k"]
    assert math.isfinite(choose(rows)["interval"][1])
