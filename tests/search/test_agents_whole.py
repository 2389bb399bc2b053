"""The agents' whole search: a model behind a real server, the real client, a program captured for a pretended GPU,
gates 1 and 2 in earnest. Only the clock of the race is a stand-in.

One search, whose model is allowed nine calls; then a second one of the same program, which begins with what was learnt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kernelopt_bot.agents import assemble, scrub
from kernelopt_bot.agents.brain import Exchange
from kernelopt_bot.agents.records import Records
from kernelopt_bot.agents.spend import LEDGER, recorded
from kernelopt_bot.cli.main import main
from kernelopt_bot.config import Config
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device import roofs
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.report.build import build
from kernelopt_bot.search import capturing, pretend_lever, workshop
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.proposing import Compiler
from kernelopt_bot.search.result import RunResult, Trial
from kernelopt_bot.search.runs import run_places
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.spots import Spot, of_run
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.workshop import Workshop
from kernelopt_bot.targets.target import Target
from tests.agents.model_server import Scene, Server, serving
from tests.search.conftest import begun
from tests.trace.run_folder import result

pytestmark = pytest.mark.slow

MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(96))
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x, y):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale, torch.relu(self.norm(y))


def get_inputs():
    return [torch.randn(6, 96), torch.randn(1, 4, 26, 25)]
"""
HEAD = """import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import libdevice


@triton.jit
"""
ROWS = HEAD + """def rows(in_ptr0, in_ptr1, out_ptr1, xnumel, r0_numel, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < xnumel) & (column < r0_numel)
    x = tl.load(in_ptr0 + row * r0_numel + column, mask=inside, other=0.0)
    scale = tl.load(in_ptr1 + column, mask=column < r0_numel, other=0.0)
    mean = tl.sum(x * x, 1)[:, None] / DIVISOR
    tl.store(out_ptr1 + row * r0_numel + column, x * libdevice.rsqrt(mean + 1e-06) * scale, mask=inside)
"""
ROW = HEAD + """def row(in_ptr0, in_ptr1, out_ptr1, r0_numel, COLUMNS: tl.constexpr):
    start = tl.program_id(0) * r0_numel
    column = tl.arange(0, COLUMNS)
    inside = column < r0_numel
    x = tl.load(in_ptr0 + start + column, mask=inside, other=0.0)
    scale = tl.load(in_ptr1 + column, mask=inside, other=0.0)
    tl.store(out_ptr1 + start + column, x * libdevice.rsqrt(tl.sum(x * x, 0) / r0_numel + 1e-06) * scale, mask=inside)
"""
FUSED = HEAD + """def fused(p0, p1, p2, p3, p4, p5, xnumel_1, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < xnumel_1
    channel = at // 650
    factor = libdevice.rsqrt(tl.load(p0 + channel // 2, mask=inside, other=1.0) / 1300.0 + 1e-05)
    factor = factor * tl.load(p1 + channel, mask=inside, other=0.0)
    shift = tl.load(p3 + channel, mask=inside, other=0.0) - tl.load(p2 + channel // 2, mask=inside, other=0.0) * factor
    tl.store(p5 + at, tl.maximum(tl.load(p4 + at, mask=inside, other=0.0) * factor + shift, 0.0), mask=inside)
"""
SEVERAL, ONE, TOGETHER = "several rows a warp", "one row a program", "both launches in one"
CLOCK_US = {SEVERAL: 5.0, ONE: 2.5}
"""What the race would say of a direction; the baseline takes 10, everything else 11."""
LESSON = "Several rows of 96 values in one warp: no barrier, twice as fast."
CALLS = 9
USAGE = (100, 40, 20, 0)


def candidate(source: str, function: str, arguments: str, grid: str, **constexprs: int) -> str:
    launch = {"function": function, "grid": [grid], "arguments": arguments.split(), "num_warps": 1, "num_stages": 1,
              "constexprs": [{"name": n, "value": v} for n, v in constexprs.items()]}
    return json.dumps({"source": source, "plan": {"parameters": [], "launches": [launch]}, "why": f"{function} it is"})


def rows(divisor: str) -> str:
    return candidate(ROWS.replace("DIVISOR", divisor), "rows", "in_ptr0 in_ptr1 out_ptr1 xnumel r0_numel",
                     "cdiv(xnumel, 4)", ROWS=4, COLUMNS=128)


def fused(block: int) -> str:
    """Triton's ranges are powers of two: anything else does not compile, with the same words for every number."""
    return candidate(FUSED, "fused", "p0 p1 p2 p3 p4 p5 xnumel_1", f"cdiv(xnumel_1, {block})", BLOCK=block)


def role_of(body: Mapping[str, Any]) -> str:
    name = body["response_format"]["json_schema"]["name"]
    assert isinstance(name, str)
    return name


def said_to(body: Mapping[str, Any]) -> str:
    text = body["messages"][-1]["content"]
    assert isinstance(text, str)
    return text


def model(body: Mapping[str, Any]) -> Scene:
    """A model that makes one mistake and mends it, and another that it does not understand."""
    role, text = role_of(body), said_to(body)
    steps = {int(n): key for key, n in re.findall(r"Spot `(\w+)`: (\d) step", text)}
    answer: Any = {}
    if role == "profiler":
        answer = {"bottlenecks": [{"spot": k, "bound": "underutilised", "evidence": "few rows"}
                                  for k in steps.values()]}
    elif role == "planner":
        names = [(1, ONE)] if SEVERAL in text else [(1, SEVERAL), (2, TOGETHER)]
        answer = {"directions": [{"spot": steps[n], "name": name, "idea": f"{name}, without barriers"}
                                 for n, name in names]}
    elif role == "summarizer":
        answer = {"action": "append", "lesson": LESSON}
    elif role == "fuser":
        answer = fused(80 if "### Attempt" in text else 96)
    elif ONE in text.partition("## The direction")[2]:
        answer = candidate(ROW, "row", "in_ptr0 in_ptr1 out_ptr1 r0_numel", "xnumel", COLUMNS=128)
    else:
        answer = rows("r0_numel" if "correctness: failed" in text else "COLUMNS")
    return {"text": answer if isinstance(answer, str) else json.dumps(answer), "usage": USAGE}


@dataclass(frozen=True)
class Searched:
    session: Session
    server: Server
    trials: tuple[Trial, ...]
    exchanges: tuple[Exchange, ...]
    again: Server
    """Of the second search."""

    def asked(self, role: str) -> list[str]:
        return [said_to(b) for b in self.server.bodies if role_of(b) == role]

    def of_model(self) -> list[Trial]:
        return [t for t in self.trials if t.candidate.author == "llm"]


def config(url: str, calls: int, rounds: int) -> Config:
    return Config.model_validate({"version": 1, "device": "cpu", "agents": {
        "model": "m", "base_url": url, "key_variable": "", "limits": {"calls": calls},
        "prices": [{"model": "m", "input": 2.0, "cached_input": 0.5, "output": 10.0}],
        "search": {"rounds": rounds, "plans": 3, "retries": 3, "exploration": 0.0}}})


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    """Skips where bubblewrap does not work."""
    root, folder = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("run")
    (root / "net.py").write_text(MODEL)
    memory = Memory.of("acme/net", writes=True, note=pytest.fail, folder=folder / "memory")
    target = Target("net", "net.py", "Model", "get_inputs", closure=("net.py",))

    with serving(by=model) as server, serving(by=model) as again:
        settings = config(server.url, CALLS, rounds=3)
        session = begun(root, folder, settings, target, memory=memory, gather=assemble.gather(settings.agents))
        trials = Trials(session.archive, session.budget)
        with (session.model_worker("model") as worker, session.compiling_worker() as compiling,
              session.kernel_worker("interpret", interpret=True) as interpreter):
            versions = worker.call("hello", {}, timeout=120)
            load(session, worker, target)
            answer = worker.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": 64 << 20},
                                 timeout=pretend_lever.TIMEOUT_S)
            captured = capturing.made(pretend_lever.recorded(answer, worker, interpreter), "net", "pretend",
                                      pretend_lever.DEVICE, versions, {})
            compiler = Compiler(compiling, pretend_lever.ARCH)

            def judge(spot: Spot, candidates: Sequence[KernelCandidate]) -> list[Trial]:
                return [raced(pretend_lever._judged(session, c, spot, compiler, interpreter, trials, {}), trials)
                        for c in candidates]

            (run,) = run_places(captured, None, roofs.pretended())
            (norm,) = [s for s in pretend_lever.spots_of(captured, "kernel")
                       if [k.heuristic for k in s.kernels] == ["persistent_reduction"]]
            assert session.party is not None
            shop = Workshop.of(session, session.party, trials, compiler, [of_run(run), norm], roofs.pretended(), judge,
                               measured=True)
            workshop.search(shop)
            tried, said = trials.all(), list(session.said)
            party = assemble.gather(config(again.url, 2, rounds=1).agents)(folder / "again" / "net")
            assert party is not None
            other = replace(session, party=party, folder=folder / "again" / "net", said=[])
            workshop.search(replace(shop, session=other, party=party))
        assert said == session.said
        yield Searched(session, server, tried, Records(session.folder).load(), again)


def raced(trial: Trial, trials: Trials) -> Trial:
    if trial.stopped_by is not None:
        return trial
    assert isinstance(trial.candidate, KernelCandidate)
    after = CLOCK_US.get(trial.candidate.technique, 11.0)
    return trials.update(trial, before_us=10.0, after_us=after, step_speedup=10.0 / after)


def test_all_five_roles_are_asked_until_the_calls_are_spent(searched: Searched) -> None:
    assert sorted(map(role_of, searched.server.bodies)) == sorted([
        "profiler", "planner", "executor", "fuser", "executor", "fuser", "summarizer", "planner", "executor"])
    assert {s.path for s in searched.server.seen} == {"/v1/chat/completions"}
    assert [(e.role, e.round, e.attempt, e.outcome, e.became) for e in searched.exchanges if e.brain == "llm"] == [
        ("profiler", 0, 0, "answered", "bottlenecks"), ("planner", 0, 0, "answered", "2 of 2 plans taken"),
        ("executor", 0, 0, "answered", "correctness"), ("fuser", 0, 0, "answered", "static"),
        ("executor", 0, 1, "answered", "passed"), ("fuser", 0, 1, "answered", "static"),
        ("summarizer", 0, 0, "answered", "remembered"), ("planner", 1, 0, "answered", "1 of 1 plans taken"),
        ("executor", 1, 0, "answered", "passed"), ("summarizer", 1, 0, "spent", "")]


def test_what_a_gate_saw_comes_back_in_the_next_prompt(searched: Searched) -> None:
    wrong, mended = [t for t in searched.of_model() if t.candidate.technique == SEVERAL]
    assert [v.status for v in wrong.verdicts] == [Status.PASS, Status.FAIL]
    assert [v.status for v in mended.verdicts] == [Status.PASS, Status.PASS] and mended.step_speedup == 2.0
    first, second, third = searched.asked("executor")
    evidence = f"- correctness: failed: {scrub.message(wrong.verdicts[1].reason)}"
    assert evidence in second and evidence not in first
    assert "[:, None] / COLUMNS" in second and "[:, None] / COLUMNS" not in first
    # The next round's planner and executor are told of both, and of the lesson.
    for text in (third, searched.asked("planner")[1]):
        assert evidence in text and "2.000x" in text and LESSON in text
    assert LESSON not in first


def test_the_same_compile_error_twice_ends_a_chain(searched: Searched) -> None:
    failures = [t.stopped_by for t in searched.of_model() if t.candidate.technique == TOGETHER]
    assert [f.gate for f in failures if f is not None] == ["static", "static"]
    first, second = searched.asked("fuser")
    assert "### Attempt" not in first and "BLOCK" in second
    assert all(f is not None and "power of 2" in f.reason for f in failures)
    assert "power of 2" in second and "power of 2" not in first


def test_built_in_brains_go_on_when_the_budget_is_spent(searched: Searched) -> None:
    last = [e for e in searched.exchanges if e.round == 2]
    assert {e.brain for e in last} == {"builtin"}
    assert any(e.role in ("executor", "fuser") and e.candidates for e in last)
    made = {c for e in last for c in e.candidates}
    assert made <= {t.candidate.id for t in searched.trials if t.candidate.author == "builtin"}
    said = searched.session.said
    assert said[0].startswith(f"agents (llm): {len(searched.trials)} candidates in 3 rounds")
    assert f"llm: the budget is spent (the {CALLS} calls to the model are spent); the search went on without" in said
    report = build(RunResult((replace(result(), agents=tuple(said)),), "kernelopt optimize net.py"))
    assert report.data["targets"][0]["agents"] == said


def test_tokens_and_money_add_up_in_every_record(searched: Searched) -> None:
    usd = CALLS * (60 * 2.0 + 40 * 0.5 + 20 * 10.0) / 1e6
    spent = recorded(searched.session.folder.parent / LEDGER)
    assert (spent.settled.calls, spent.settled.input, spent.settled.output) == (CALLS, 100 * CALLS, 20 * CALLS)
    assert spent.settled.usd == pytest.approx(usd) and spent.reserved.calls == 0 and not spent.unpriced
    of_model = [e.usage for e in searched.exchanges if e.brain == "llm"]
    assert sum(u.input_tokens for u in of_model) == 100 * CALLS
    assert sum(u.money_usd or 0.0 for u in of_model) == pytest.approx(usd)
    figures = json.loads((searched.session.folder / "agents.json").read_text())["yields"]["llm"]
    assert (figures["candidates"], figures["passed"], figures["mended"], figures["stopped"]) == (
        5, 2, 1, {"static": 2, "correctness": 1})
    assert sum(r["money_usd"] for r in figures["roles"].values()) == pytest.approx(usd)


def test_the_trace_shows_who_proposed_what_and_what_it_cost(
        searched: Searched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["trace", str(searched.session.folder.parent), "--all"]) == 0
    shown = capsys.readouterr().out
    for technique, mark in ((SEVERAL, "✗\u00a0correctness"), (ONE, "✓\u00a0correctness"), (TOGETHER, "✗\u00a0static")):
        assert any(f"{technique} [llm]" in line and mark in line for line in shown.splitlines())
    assert "[builtin]" in shown and f"Model: {CALLS} calls, 900 tokens in, 180 out, 0.0031 US dollars" in shown


def test_the_next_search_begins_with_what_was_learnt(searched: Searched) -> None:
    assert searched.session.memory is not None
    assert searched.session.memory.path.read_bytes().startswith(b"SQLite format 3")
    (text,) = [said_to(b) for b in searched.again.bodies if role_of(b) == "planner"]
    assert LESSON in text and "def f0(in_ptr0" in text
    assert LESSON not in searched.asked("planner")[0]
