"""The client against a scripted server over real sockets: every way in which a call can end."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import kernelopt_bot
from kernelopt_bot.agents.client import Client
from kernelopt_bot.agents.messages import Answer, ModelError, Request, Spent
from kernelopt_bot.agents.settings import Agents, Limits, Price, RoleModel, Roles
from kernelopt_bot.agents.spend import Ledger
from kernelopt_bot.errors import InputError
from kernelopt_bot.process import redact
from tests.agents.model_server import Scene, Server, serving

KEY = "sk-test-0123456789abcdef"
SCHEMA = {"title": "A", "type": "object", "properties": {"why": {"type": "string", "maxLength": 9}}}
REQUEST = Request("rules", "question", SCHEMA, "plan")
PRICE = Price(model="m", input=2.0, cached_input=0.5, output=8.0)
OK: Scene = {"text": '{"why": "x"}', "usage": (1000, 400, 50, 10)}


class Asked:
    """A client with its server, its ledger and what it waited."""

    def __init__(self, server: Server, folder: Path, **settings: Any) -> None:
        os.environ["KERNELOPT_TEST_API_KEY"] = KEY
        given = {"model": "m", "base_url": server.url, "key_variable": "KERNELOPT_TEST_API_KEY", "prices": (PRICE,),
                 "idle_s": 0.2, "timeout_s": 20.0}
        self.server, self.waits, self.skipped = server, list[float](), 0.0
        self.settings = Agents(**{**given, **settings})
        self.ledger = Ledger(folder / "spend.jsonl", self.settings.limits, self.settings.prices)
        self.client = Client(self.settings, self.ledger, sleep=self.skip, uniform=lambda low, high: high,
                             clock=lambda: time.monotonic() + self.skipped)

    def skip(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.skipped += seconds

    def __call__(self, request: Request = REQUEST) -> Answer:
        return self.client.ask("executor", request)

    def fails(self, kind: str, calls: int) -> ModelError:
        with pytest.raises(ModelError) as caught:
            self()
        assert caught.value.kind == kind, caught.value
        assert len(self.server.seen) == caught.value.calls == calls
        assert self.ledger.spending().settled.calls == calls and self.ledger.spending().reserved.calls == 0
        assert KEY not in str(caught.value)
        return caught.value


Make = Callable[..., Asked]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with contextmanager(_made)(tmp_path) as made:
        yield made


def _made(folder: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(*scenes: Scene, **settings: Any) -> Asked:
            asked = Asked(stack.enter_context(serving(*scenes)), folder, **settings)
            stack.callback(asked.client.close)
            return asked

        yield made


both = pytest.mark.parametrize("api", ["chat", "responses"])
streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@both
@streamed
def test_an_answer(make: Make, api: str, stream: bool) -> None:
    asked = make(OK, api=api, stream=stream)
    answer = asked()
    assert (answer.text, answer.model, answer.calls, answer.faults) == ('{"why": "x"}', "m", 1, ())
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.cached, answer.usage.output, answer.usage.reasoning) == (1000, 400, 50, 10)
    assert answer.usd == pytest.approx((600 * 2.0 + 400 * 0.5 + 50 * 8.0) / 1e6)
    assert asked.ledger.spending().settled.tokens == 1050
    seen, = asked.server.seen
    assert (seen.path, seen.key) == ("/v1/chat/completions" if api == "chat" else "/v1/responses", KEY)
    messages = seen.body["messages" if api == "chat" else "input"]
    assert [m["content"] for m in messages] == ["rules", "question"]
    form = seen.body["response_format"]["json_schema"] if api == "chat" else seen.body["text"]["format"]
    assert (form["name"], form["strict"]) == ("plan", True)
    assert form["schema"] == {"type": "object", "properties": {"why": {"type": "string"}},
                              "additionalProperties": False, "required": ["why"]}
    # A service that keeps requests is asked not to; nobody else is told anything about it.
    assert seen.body.get("store", False) is False


@pytest.mark.parametrize(("api", "usage"), [("chat", None), ("responses", (0, 0, 0, 0))])
def test_a_server_that_does_not_count_is_paid_the_worst(make: Make, api: str, usage: object) -> None:
    asked = make({"text": "x", "usage": usage}, api=api)
    assert asked().usage is None
    assert asked.ledger.spending().settled.output == 16_384


@both
def test_a_role_has_its_own_model_temperature_effort_and_limit(make: Make, api: str) -> None:
    own = RoleModel(model="big", temperature=0.2, effort="high", max_output_tokens=500)
    asked = make(OK, api=api, roles=Roles(executor=own))
    answer = asked()
    body, = asked.server.bodies
    assert (body["model"], body["temperature"]) == ("big", 0.2)
    assert body["max_completion_tokens" if api == "chat" else "max_output_tokens"] == 500
    assert (body["reasoning_effort"] if api == "chat" else body["reasoning"]["effort"]) == "high"
    assert answer.usd is None


@both
@streamed
@pytest.mark.parametrize(("scene", "kind"), [
    ({"refusal": "I cannot"}, "refused"), ({"text": "ha", "finish": "content_filter"}, "refused"),
    ({"text": '{"wh', "finish": "length"}, "truncated")])
def test_no_usable_answer_is_not_asked_for_again(make: Make, api: str, stream: bool, scene: Scene, kind: str) -> None:
    asked = make(scene, api=api, stream=stream)
    error = asked.fails(kind, 1)
    # It was made, so it is paid for as the server counted it.
    assert asked.ledger.spending().settled.tokens == 120
    if kind == "truncated":
        assert error.text == '{"wh'


@both
def test_an_empty_answer_is_asked_for_once_more(make: Make, api: str) -> None:
    make({"text": " \n"}, api=api).fails("empty", 2)


def test_a_limit_of_requests_is_waited_out(make: Make) -> None:
    limit = {"status": 429, "error": {"message": "slow down"}}
    asked = make(limit | {"headers": {"Retry-After": "7"}}, limit, {"status": 503}, OK)
    answer = asked()
    assert answer.faults == ("rate_limited", "rate_limited", "server") and answer.calls == 4
    # The server's wish and the jitter on top of it, then jitter alone.
    assert asked.waits == [8.0, 2.0, 4.0]
    # Errors cost no tokens.
    cost = asked.ledger.spending().settled
    assert cost.calls == 4 and cost.output == 50


def test_what_a_server_asks_for_is_really_waited(make: Make, tmp_path: Path) -> None:
    with serving({"status": 429, "headers": {"Retry-After": "0.4"}}, OK) as server:
        asked = Asked(server, tmp_path / "real")
        client = Client(asked.settings, asked.ledger, uniform=lambda low, high: 0.0)
        client.ask("executor", REQUEST)
        client.close()
        assert server.seen[1].at - server.seen[0].at >= 0.4


def test_a_server_that_wants_a_long_silence_is_given_up(make: Make) -> None:
    scene = {"status": 429, "headers": {"Retry-After": "3600"}}
    asked = make(scene, retry_after_s=10.0)
    assert asked.fails("rate_limited", 1).retry_after_s == 3600
    assert asked.waits == []


@both
@pytest.mark.parametrize(("scene", "kind"), [
    ({"status": 504}, "server"), ({"status": 529}, "server"), ({"drop": True}, "unreachable"),
    ({"text": "abcdef", "cut": True}, "cut"), ({"text": "abcdef", "stall_s": 5.0}, "timed_out"),
    ({"text": "abcdef", "breaks": "overloaded"}, "server"),
    ({"raw": ("text/event-stream", b"data: {oops\n\n")}, "malformed"),
    ({"raw": ("text/html", b"<html>Welcome</html>")}, "cut"), ({"text": "abcdef", "finish": ""}, "cut")])
def test_faults_that_may_pass_are_repeated_at_most_so_often(make: Make, api: str, scene: Scene, kind: str) -> None:
    asked = make(scene, api=api, retries=1)
    asked.fails(kind, 2)
    # What nobody counted is booked at its worst.
    counted = "finish" in scene if api == "chat" else "breaks" in scene
    each = 0 if scene.get("status") == 529 else 20 if counted else 16_384
    assert asked.ledger.spending().settled.output == 2 * each


def test_a_server_that_was_never_reached_cost_nothing(make: Make) -> None:
    asked = make(OK, base_url="http://127.0.0.1:9/v1", retries=1)
    with pytest.raises(ModelError) as caught:
        asked()
    assert caught.value.kind == "unreachable"
    settled = asked.ledger.spending().settled
    assert (settled.calls, settled.tokens) == (2, 0)


@both
@pytest.mark.parametrize(("scene", "kind"), [
    ({"raw": ("text/html", b"<html>Welcome</html>")}, "malformed"),
    ({"raw": ("application/json", b"{oops")}, "malformed"),
    ({"raw": ("application/json", b"[]")}, "malformed"), ({"text": "a", "wait_s": 5.0}, "timed_out")])
def test_whole_answers_of_another_form_or_too_late(make: Make, api: str, scene: Scene, kind: str) -> None:
    make(scene, api=api, stream=False, timeout_s=0.25, retries=1).fails(kind, 2)


def test_a_stream_of_nothing_but_signs_of_life_has_an_end(make: Make) -> None:
    asked = make({"text": "abcdef", "pings_s": 30.0}, timeout_s=0.6, retries=0)
    begin = time.monotonic()
    assert "within 0.6 s" in asked.fails("timed_out", 1).what
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(("status", "error", "kind"), [
    (401, {"message": f"Incorrect API key provided: {KEY}"}, "denied"), (403, {"message": "not for you"}, "denied"),
    (404, {"message": "The model `m` does not exist"}, "no_model"),
    (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "no_quota")])
def test_what_no_request_can_pass_is_asked_once(make: Make, status: int, error: dict[str, str], kind: str) -> None:
    asked = make({"status": status, "error": error}, OK)
    asked.fails(kind, 1)
    assert str(status) in asked.client.unusable and KEY not in asked.client.unusable
    with pytest.raises(ModelError) as caught:
        asked()
    assert caught.value.kind == kind and len(asked.server.seen) == 1


@pytest.mark.parametrize("error", [
    {"message": "This model's maximum context length is 8192 tokens", "code": "context_length_exceeded"},
    {"message": "the request exceeds the available context size. try increasing it"}])
def test_a_prompt_that_is_too_long_says_so_and_costs_no_tokens(make: Make, error: dict[str, str]) -> None:
    asked = make({"status": 400, "error": error})
    asked.fails("too_long", 1)
    assert asked.ledger.spending().settled.tokens == 0


def test_a_redirect_is_not_followed(make: Make) -> None:
    asked = make({"status": 307, "headers": {"Location": "http://127.0.0.1:9/v1"}})
    asked.fails("rejected", 1)


@both
def test_parameters_that_a_server_does_not_know_are_done_without_from_then_on(make: Make, api: str) -> None:
    unknown = ["response_format", "text", "max_completion_tokens", "stream_options", "temperature", "reasoning_effort",
               "reasoning", "store"]
    asked = make({**OK, "refuses": unknown}, api=api, temperature=0.5, effort="low", retries=0)
    answer = asked()
    assert set(answer.faults) == {"rejected"} and asked.waits == []
    last = asked.server.bodies[-1]
    assert not set(unknown) & set(last)
    if api == "chat":
        assert last["max_tokens"] == 16_384
    count = len(asked.server.seen)
    assert asked().faults == () and len(asked.server.seen) == count + 1
    # Without a count at the end of the stream the worst case stands.
    assert (answer.usage is None) == (api == "chat")


def test_without_schemas_any_json_is_asked_for(make: Make) -> None:
    error = {"message": "'response_format.type' must be 'json_object'", "param": "response_format"}
    asked = make({"status": 400, "error": error}, OK)
    assert asked().faults == ("rejected",)
    assert asked.server.bodies[-1]["response_format"] == {"type": "json_object"}


def test_a_form_that_is_fixed_stays(make: Make) -> None:
    asked = make({**OK, "refuses": ["response_format"]}, structured="strict")
    asked.fails("rejected", 1)
    make({**OK, "refuses": ["response_format"]}, structured="off")()


def test_an_open_map_is_no_strict_schema(make: Make) -> None:
    asked = make(OK)
    schema = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}}}
    asked(Request("", "", schema))
    form = asked.server.bodies[0]["response_format"]["json_schema"]
    assert form == {"name": "answer", "strict": False, "schema": schema}


def test_no_call_is_made_that_might_pass_the_limit(make: Make) -> None:
    asked = make(OK, limits=Limits(calls=None, tokens=None, money_usd=0.2))
    asked()
    with pytest.raises(Spent, match=r"0\.20 US dollars"):
        asked(Request("", "x" * 40_000))
    assert len(asked.server.seen) == 1
    asked()


def test_repetitions_are_calls_too(make: Make) -> None:
    asked = make({"status": 500}, limits=Limits(calls=2), retries=9)
    with pytest.raises(Spent):
        asked()
    assert len(asked.server.seen) == 2


def test_no_more_than_so_many_at_once_and_one_silence_for_all(make: Make) -> None:
    asked = make({**OK, "wait_s": 0.1}, parallel=2)
    threads = [threading.Thread(target=asked) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert asked.server.most == 2 and len(asked.server.seen) == 6


def test_the_end_of_the_run_ends_a_wait(make: Make, tmp_path: Path) -> None:
    with serving({"status": 503, "headers": {"Retry-After": "60"}}) as server:
        asked = Asked(server, tmp_path / "x")
        client = Client(asked.settings, asked.ledger)
        errors: list[str] = []

        def work() -> None:
            try:
                client.ask("planner", REQUEST)
            except ModelError as error:
                errors.append(error.kind)

        thread = threading.Thread(target=work)
        thread.start()
        while not asked.ledger.spending().settled.calls:
            time.sleep(0.01)
        client.close()
        thread.join(5)
        assert errors == ["server"]


def test_the_key_leaves_the_environment_and_no_text_shows_it(make: Make) -> None:
    asked = make(OK)
    assert "KERNELOPT_TEST_API_KEY" not in os.environ
    assert redact(f"it is {KEY}!") == "it is ***!"
    # A second client of the same run finds it all the same.
    Client(asked.settings, asked.ledger).close()


def test_without_a_model_or_a_key_nothing_starts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "spend.jsonl", Limits(), ())
    with pytest.raises(InputError, match="no model"):
        Client(Agents(), ledger)
    with pytest.raises(InputError, match="key is not set"):
        Client(Agents(model="m", key_variable="KERNELOPT_NO_SUCH_KEY"), ledger)
    Client(Agents(model="m", key_variable=""), ledger).close()


def test_one_file_alone_talks_to_models() -> None:
    package = Path(kernelopt_bot.__file__).parent
    found = [p.name for p in package.rglob("*.py")
             if re.search(r"^\s*(import|from) (openai|httpx2?)\b", p.read_text(), re.MULTILINE)]
    assert found == ["client.py"]
