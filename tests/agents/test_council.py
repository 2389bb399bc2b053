from __future__ import annotations

import dataclasses
import json

import pytest

from kernelopt_bot.agents.answers import CandidateAnswer
from kernelopt_bot.agents.brain import Exchange, Prompt, Question, Reply, Usage
from kernelopt_bot.agents.council import Council
from tests.agents.facts import DEVICE, Scripted, candidate_text, question, spot


def test_an_answer_that_does_not_fit_is_repaired_once() -> None:
    brain = Scripted(lambda q: candidate_text() if q.repair else '{"source": "x"}')
    kept: list[Exchange] = []
    (told,) = Council([brain], kept.append).ask(brain, [question()])
    assert isinstance(told.answer, CandidateAnswer)
    assert [q.repair is not None for q in brain.asked] == [False, True]
    assert brain.asked[1].repair is not None and brain.asked[1].repair.text == '{"source": "x"}'
    assert [(e.outcome, bool(e.faults)) for e in kept] == [("answered", True), ("answered", False)]
    assert kept[0].key + "-repair" == kept[1].key


def test_a_second_bad_answer_is_the_last_one() -> None:
    brain = Scripted(lambda q: "no")
    council = Council([brain])
    (told,) = council.ask(brain, [question()])
    assert told.answer is None and told.exchange.faults and len(brain.asked) == 2
    assert council.yields.of("scripted").roles["executor"].malformed == 2


def test_answers_keep_the_order_of_their_questions() -> None:
    def say(q: Question) -> str:
        good = q.repair is not None or q.round != 1
        return candidate_text(why=str(q.round)) if good else "{}"

    brain = Scripted(say)
    told = Council([brain]).ask(brain, [question(round=n) for n in range(3)])
    assert [t.answer.why for t in told if isinstance(t.answer, CandidateAnswer)] == ["0", "1", "2"]
    assert len(brain.asked) == 4


@pytest.mark.parametrize(("reply", "words"), [
    (Reply("spent", reason="200 calls", lasting=True), "scripted: the budget is spent (200 calls); the search went on"),
    (Reply("unavailable", reason="connection refused", lasting=True), "scripted: unavailable: connection refused"),
])
def test_a_brain_of_no_more_use_is_not_asked_again_and_the_report_is_told(reply: Reply, words: str) -> None:
    brain, other = Scripted(lambda q: reply), Scripted(lambda q: candidate_text(), "other")
    council = Council([brain, other])
    (told,) = council.ask(brain, [question()])
    assert told.answer is None and council.brains == [other]
    assert len(council.notes) == 1 and council.notes[0].startswith(words)


def test_a_refusal_is_noted_and_costs_only_this_question() -> None:
    brain = Scripted(lambda q: Reply("refused", reason="policy"))
    council = Council([brain])
    council.ask(brain, [question(), question(round=1)])
    assert council.brains == [brain] and council.notes == ["scripted: refused: policy"]


def test_what_became_of_an_answer_is_recorded_under_the_same_key() -> None:
    kept: list[Exchange] = []
    brain = Scripted(lambda q: candidate_text())
    council = Council([brain], kept.append)
    (told,) = council.ask(brain, [question()])
    council.became(told, "correctness", ["scripted-1"])
    assert kept[1].key == kept[0].key
    assert (kept[1].became, kept[1].candidates, kept[0].became) == ("correctness", ("scripted-1",), "")


def test_usage_is_added_up_by_role() -> None:
    reply = Reply("answered", candidate_text(), usage=Usage(1000, 800, 50, 0.02), seconds=3.0)
    brain = Scripted(lambda q: reply)
    council = Council([brain])
    council.ask(brain, [question(), question(round=1)])
    role = council.yields.of("scripted").roles["executor"]
    assert (role.asked, role.answered, role.input_tokens, role.output_tokens) == (2, 2, 2000, 100)
    assert role.money_usd == pytest.approx(0.04) and role.seconds == pytest.approx(6.0)


def test_an_exchange_survives_json() -> None:
    exchange = Exchange.of("llm", question(attempt=2), Reply(
        "answered", "text", prompt=Prompt("s", "u", "1", 7, ("history",)), usage=Usage(1, 2, 3, None), model="m"),
        ("f",))
    assert Exchange.from_json(json.loads(json.dumps(exchange.to_json()))) == exchange
    for broken in ({"schema": 2}, {"role": "judge"}, {"outcome": "perhaps"}, {"usage": {"x": 1}}):
        with pytest.raises((ValueError, TypeError)):
            Exchange.from_json({**exchange.to_json(), **broken})


def test_keys_tell_questions_apart_and_are_plain_file_names() -> None:
    asked = [question(), question(attempt=1), question(round=1), question("summarizer"), question("fuser")]
    direction = asked[0].direction
    assert direction is not None
    asked.append(question(direction=dataclasses.replace(direction, name="another/../direction")))
    asked.append(Question("planner", 0, DEVICE, (spot(),)))
    keys = [q.key for q in asked]
    assert len(set(keys)) == len(keys)
    assert all(k.replace("-", "").isalnum() for k in keys)
