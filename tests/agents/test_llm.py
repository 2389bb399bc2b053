"""The brain that asks a model: questions in, replies out, whatever the server does."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.agents import answers, llm
from kernelopt_bot.agents.brain import Brain
from kernelopt_bot.agents.settings import Agents, Limits, Price
from kernelopt_bot.agents.spend import Ledger
from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.process import environment, start, stop, wait
from tests.agents.model_server import Scene, Server, serving
from tests.agents.questions import SPOT, STEP, question

PLAN = json.dumps({"directions": [{"spot": SPOT.key, "name": "n", "idea": "i", "expected_gain": 1.2, "effort": 1}]})


@contextmanager
def asked(folder: Path, *scenes: Scene, **settings: Any) -> Iterator[tuple[Brain, Server]]:
    with serving(*scenes) as server:
        given: dict[str, Any] = {"model": "m", "base_url": server.url, "key_variable": "", "retries": 0}
        made = llm.brain(Agents(**{**given, **settings}), folder / "target")
        try:
            yield made, server
        finally:
            assert isinstance(made, llm.LanguageModel)
            made.close()


def test_questions_are_answered_in_their_order(tmp_path: Path) -> None:
    price = Price(model="m", input=1.0, output=10.0)
    slow: Scene = {"echo": True, "wait_s": 0.2}
    questions = [question("planner", spots=(replace(SPOT, key=f"spot{i}"),)) for i in range(3)]
    with asked(tmp_path, slow, {"echo": True}, prices=(price,), parallel=3) as (brain, server):
        assert isinstance(brain, Brain) and brain.name == "llm"
        replies = brain.ask(questions)
        for number, reply in enumerate(replies):
            assert reply.outcome == "answered" and reply.model == "m" and reply.prompt is not None
            assert reply.text == reply.prompt.user and f"spot{number}" in reply.text
            assert reply.prompt.version.startswith("planner 1")
            assert reply.usage.money_usd == pytest.approx((100 + 200) / 1e6)
        systems = {r.prompt.system for r in replies if r.prompt is not None}
        assert {b["messages"][0]["content"] for b in server.bodies} == systems and len(systems) == 1
    # What the run may cost is the run's, not a target's.
    assert Ledger(tmp_path / "spend.jsonl", Limits(), (price,)).spending().settled.calls == 3


def test_every_schema_is_one_that_strict_servers_take(tmp_path: Path) -> None:
    with asked(tmp_path, {"text": "{}"}) as (brain, server):
        brain.ask([question(role) for role in answers.MODELS])
        assert len(server.bodies) == 5
        for body in server.bodies:
            form = body["response_format"]["json_schema"]
            assert form["strict"] is True
            for node in nodes(form["schema"]):
                if node.get("type") == "object":
                    assert node["additionalProperties"] is False and node["required"] == list(node["properties"])


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes(value)


@pytest.mark.parametrize(("scene", "outcome", "lasting"), [
    ({"refusal": "no"}, "refused", False), ({"text": "{", "finish": "length"}, "truncated", False),
    ({"text": ""}, "empty", False),
    ({"status": 400, "error": {"message": "maximum context length"}}, "too long", False),
    ({"status": 503}, "unavailable", False), ({"status": 401}, "unavailable", True)])
def test_a_failure_is_a_reply(tmp_path: Path, scene: Scene, outcome: str, lasting: bool) -> None:
    with asked(tmp_path, scene) as (brain, _):
        reply, = brain.ask([question("executor")])
        assert (reply.outcome, reply.lasting, reply.text) == (outcome, lasting, "")
        assert reply.reason and reply.model == "m"


def test_a_server_that_stays_away_is_given_up(tmp_path: Path) -> None:
    scenes: list[Scene] = [{"status": 502}, {"status": 502}, {"text": PLAN}, *[{"status": 502}] * llm.LOST_AFTER]
    with asked(tmp_path, *scenes) as (brain, server):
        replies = [brain.ask([question("executor", round=i)])[0] for i in range(3 + llm.LOST_AFTER)]
        # An answer in between begins the count anew.
        assert [r.lasting for r in replies] == [False] * 5 + [True] and len(server.seen) == 6


def test_the_faults_before_an_answer_are_on_record(tmp_path: Path) -> None:
    with asked(tmp_path, {"status": 429, "headers": {"Retry-After": "0"}}, {"text": PLAN}, retries=1) as (brain, _):
        reply, = brain.ask([question("planner")])
        assert (reply.outcome, reply.reason) == ("answered", "repeated after: rate_limited")


def test_a_spent_budget_lasts(tmp_path: Path) -> None:
    for expected in ("answered", "spent"):
        # The second time as after a restart.
        with asked(tmp_path, {"text": PLAN}, limits=Limits(calls=1)) as (brain, server):
            reply, = brain.ask([question("planner")])
            assert reply.outcome == expected
            assert reply.lasting == (expected == "spent") and len(server.seen) == (expected == "answered")


def test_a_question_whose_least_is_too_long_is_not_asked(tmp_path: Path) -> None:
    spot = replace(SPOT, steps=(replace(STEP, source="x = 1\n" * 10_000),))
    with asked(tmp_path, {"text": PLAN}, prompt_tokens=6000) as (brain, server):
        reply, = brain.ask([question("executor", spots=(spot,))])
        assert (reply.outcome, server.seen) == ("too long", []) and "agents.prompt_tokens" in reply.reason


def test_costs_that_cannot_be_recorded_end_the_run(tmp_path: Path) -> None:
    with asked(tmp_path, {"text": PLAN}) as (brain, server):
        (tmp_path / "spend.jsonl").mkdir()
        with pytest.raises(Unavailable, match="no call was made"):
            brain.ask([question("planner"), question("profiler")])
        assert server.seen == []


def test_an_interrupted_run_does_not_wait_for_a_silent_server(tmp_path: Path) -> None:
    # In a process of its own, interrupted as by a user who presses Ctrl-C while the server thinks.
    with serving({"text": PLAN, "wait_s": 60.0}) as server:
        program = f"""
import pathlib
from kernelopt_bot.agents import llm
from kernelopt_bot.agents.settings import Agents
from tests.agents.questions import question
brain = llm.brain(Agents(model="m", base_url="{server.url}", key_variable=""), pathlib.Path("run/target"))
brain.ask([question("planner"), question("profiler")])
"""
        root = Path(__file__).parents[2]
        asking = start([sys.executable, "-c", program], cwd=tmp_path,
                       environment=environment(extra={"PYTHONPATH": str(root)}))
        while len(server.seen) < 2:
            assert asking.poll() is None
            time.sleep(0.02)
        asking.send_signal(signal.SIGINT)
        code = wait(asking, 10)
        stop(asking)
        assert code == -signal.SIGINT
    # What was under way counts as spent.
    assert Ledger(tmp_path / "run" / "spend.jsonl", Limits(), ()).spending().settled.calls == 2


def test_a_model_without_a_price_starts_nothing_where_money_is_limited(tmp_path: Path) -> None:
    agents = Agents(model="m", key_variable="", prices=(Price(model="m", input=1, output=1),))
    limited = agents.model_copy(update={"limits": Limits(money_usd=1.0), "prices": ()})
    with pytest.raises(InputError, match="price"):
        llm.brain(limited, tmp_path / "target")
