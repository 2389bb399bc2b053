"""Planning of a sweep: pure, from facts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.config import Sweep
from kernelopt_bot.search.sweep import (
    DAY_S,
    UNKNOWN,
    Held,
    Opened,
    Plan,
    Room,
    amdahl,
    due,
    held_in,
    plan,
    rooms_in,
    settle,
)

NOW = 1_000 * DAY_S
STACK = {"torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200"}


def held(target: str, days: float | None = 0.0, speedup: float = 1.2) -> Held:
    return Held(f"kernels/{target}", target, speedup, STACK, None if days is None else NOW - days * DAY_S)


def names(made: Plan) -> list[str]:
    return [s.target for s in made.searches]


def test_amdahl() -> None:
    assert amdahl(Room(0.5, 2.0)) == pytest.approx(1 / 0.75 - 1)
    assert amdahl(Room(1.0, 3.0)) == pytest.approx(2.0)
    assert amdahl(Room(0.0, 9.0)) == amdahl(Room(0.9, 1.0)) == pytest.approx(0.0)


def test_an_artifact_is_due_when_the_stack_or_the_time_says_so() -> None:
    settings = Sweep(reverify_days=7.0)
    assert due(held("a", 6.9), STACK, NOW, settings) == ""
    assert due(held("a", 8), STACK, NOW, settings) == "verified 8 days ago"
    assert due(held("a", 0), {**STACK, "torch": "2.12.0"}, NOW, settings) == (
        "verified with torch 2.11.0, here is 2.12.0")
    driven = replace(held("a", 0), environment={**STACK, "driver": "580.1"})
    assert due(driven, {**STACK, "driver": "590.2"}, NOW, settings) == "verified with driver 580.1, here is 590.2"
    assert due(driven, {**STACK, "driver": "580.1"}, NOW, settings) == due(held("a", 0), {**STACK, "driver": "1"}, NOW,
                                                                          settings) == ""
    assert "nobody knows" in due(held("a", None), STACK, NOW, settings)


def test_most_expected_gain_first() -> None:
    rooms = {"small": Room(0.1, 1.1), "large": Room(0.9, 2.0), "fresh": Room(0.9, 2.0), "stale": Room(0.1, 1.1)}
    owned = [held("fresh", 1, 1.0), held("stale", 1, 1.6)]
    made = plan(["small", "large", "fresh", "stale", "new"], owned, {"kernels/stale": "stale"}, rooms, now=NOW,
                settings=Sweep(targets=10))
    assert names(made) == ["large", "stale", "new", "fresh", "small"]
    expected = {s.target: s.expected for s in made.searches}
    assert expected["large"] == pytest.approx(amdahl(rooms["large"]))
    assert expected["stale"] == pytest.approx(0.6)
    assert expected["new"] == pytest.approx(amdahl(UNKNOWN))
    assert expected["fresh"] == pytest.approx(amdahl(rooms["fresh"]) * (1 - 2 ** (-1 / 30)))


def test_caps() -> None:
    settings = Sweep(targets=1, open_pull_requests=2)
    made = plan(["a", "b", "c"], [], {}, {}, now=NOW, settings=settings, opened=Opened(1, ("a",)))
    assert names(made) == ["b"]
    assert dict(made.left) == {"a": "a pull request for it is open",
                               "c": "others are expected to gain more, and the limit is 1 a sweep"}
    none = plan(["a"], [], {}, {}, now=NOW, settings=settings, opened=Opened(2))
    assert not none.searches and "2 of our pull requests are open" in none.left[0][1]
    none = plan(["a"], [], {}, {}, now=NOW, settings=settings, opened=Opened(waiting="its own is open"))
    assert none == Plan((), (("a", "its own is open"),))


def test_what_a_person_edited_is_left_to_a_person() -> None:
    made = plan(["a"], [held("a")], {"kernels/a": "modified"}, {"a": Room(0.9, 9.0)}, now=NOW, settings=Sweep())
    assert not made.searches and "edited" in made.left[0][1]


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 1), st.floats(1, 100)), max_size=8),
       st.lists(st.sampled_from("abcdefgh"), max_size=4), st.integers(0, 4), st.integers(0, 5))
def test_every_target_is_searched_or_named_once(
        given: list[tuple[str, float, float]], waiting: list[str], most: int, pulls: int) -> None:
    targets = sorted({name for name, _, _ in given})
    made = plan(targets, [held(t, 3) for t in targets[::2]], {}, {n: Room(p, s) for n, p, s in given}, now=NOW,
                settings=Sweep(targets=most, open_pull_requests=3), opened=Opened(pulls, tuple(waiting)))
    assert sorted([*names(made), *(name for name, _ in made.left)]) == targets
    assert len(made.searches) <= most and not set(names(made)) & set(waiting)
    gains = [s.expected for s in made.searches]
    assert gains == sorted(gains, reverse=True)


def test_what_is_proposed() -> None:
    owned = [held(t) for t in ("kept", "mended", "lost", "later", "edited", "rested")]
    states = {"kernels/kept": ("verified", ""), "kernels/mended": ("stale", "verified with torch 2.11.0"),
              "kernels/lost": ("regressed", "0.99x"), "kernels/later": ("stale", "other torch"),
              "kernels/edited": ("modified", "k.py")}
    made = {p.artifact.removeprefix("kernels/"): p for p in settle(owned, states, {"mended": True, "lost": False})}
    assert {name: p.action for name, p in made.items()} == {
        "kept": "keep", "mended": "mend", "lost": "remove", "later": "report", "edited": "report", "rested": "keep"}
    assert made["later"].reason == "other torch; not searched again in this sweep"
    assert made["rested"].state == "held"


def test_manifests_are_data_of_unknown_origin(tmp_path: Path) -> None:
    texts = {"good": json.dumps({"evidence": {"speedup": 1.3}, "environment": {"torch": "2.11.0"}}), "list": "[1]",
             "broken": "{", "huge": json.dumps({"evidence": {"speedup": 1e9}, "environment": []})}
    for name, text in texts.items():
        (tmp_path / "kernels" / name).mkdir(parents=True)
        (tmp_path / "kernels" / name / "manifest.json").write_text(text)
    (tmp_path / "kernels/link").symlink_to(tmp_path / "kernels/good")
    found = {h.target: h for h in held_in(tmp_path, "kernels")}
    assert sorted(found) == ["broken", "good", "huge", "list"]
    assert found["good"] == Held("kernels/good", "good", 1.3, {"torch": "2.11.0"})
    assert all(found[n].speedup == 1.0 and found[n].environment == {} for n in ("broken", "huge", "list"))


def test_rooms_of_an_earlier_report() -> None:
    step = {"kind": "kernel", "time_us": 10.0, "floor_us": 5.0, "headroom": 2.0, "calls": 3}
    report = {"targets": [
        {"name": "a", "profile": {"call_us": 60.0, "steps": [step, {**step, "kind": "vendor"}]}},
        {"name": "b", "profile": None},
        {"name": "c", "profile": {"call_us": 60.0, "steps": [{**step, "time_us": None}]}}]}
    assert rooms_in(report) == {"a": Room(0.5, 2.0)}
