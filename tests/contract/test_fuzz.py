"""The static gate and the runtime's text functions against hostile candidates: documented answers only, no hang, no
side effect. Examples are derived from the tests' own code, so that every run sees the same ones."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernelopt_bot.compiler import _runtime
from kernelopt_bot.compiler._runtime import PlanError, Run
from kernelopt_bot.contract import expressions, flow
from kernelopt_bot.contract import plan as plan_contract
from kernelopt_bot.contract import source as source_contract
from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.contract.violation import Violation
from tests.contract import hostile

ROOT = Path(__file__).parents[2]
WRAPPER = (ROOT / "tests" / "data" / "wrappers" / "h200_torch2.11_inference.py").read_text()
PARSED = _runtime.read_wrapper(WRAPPER)
KERNEL = PARSED.kernels[PARSED.calls[0].kernel]
HASH = _runtime.run_hash(PARSED.calls[:1], PARSED.kernels)
INTEGERS = {"xnumel": 1024, "r0_numel": 256, "num_sms": 132}

SECONDS = 5.0
"""Longest time for one call on a loaded machine; the largest honest sources take below 0.2 s."""

# Without `explain`, whose tracing on Python 3.12 does not survive an exhausted stack.
fuzzed = settings(max_examples=250, deadline=None, derandomize=True, database=None,
                  phases=(Phase.generate, Phase.shrink),
                  suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
seeds = st.integers(0, 2**32 - 1)


def timed(call: Callable[[], Any]) -> Any:
    start = time.process_time()
    answer = call()
    assert time.process_time() - start < SECONDS
    return answer


def check_source(text: str) -> None:
    """`contract.source.check` and what may run on a source whether it conforms or not."""
    found = timed(lambda: source_contract.check(text))
    assert all(isinstance(v, Violation) and v.rule for v in found)
    json.dumps([v.to_json() for v in found])
    digest = timed(lambda: _runtime.kernel_hash(text))
    assert len(digest) == 24 and digest == _runtime.kernel_hash(text)
    functions = source_contract.functions(text)
    if not found:
        for name, function in functions.items():
            pointers = frozenset(source_contract.runtime_parameters(function)[:2])
            effects = timed(lambda n=name, p=pointers: flow.analyse(functions, n, p))
            assert effects.stored | effects.loaded <= pointers


def check_plan(text: str, data: Any) -> None:
    """A plan as it arrives: read, checked, rendered and put into a wrapper."""
    try:
        plan = Plan.from_json(data)
    except (TypeError, KeyError, ValueError):
        plan = None
    if plan is not None:
        found = timed(lambda: plan_contract.check(plan, text, integers=INTEGERS))
        json.dumps([v.to_json() for v in found])
        if not found:
            plan_contract.float_atomics(plan, text)
    mapping = data if isinstance(data, Mapping) else {"parameters": data, "launches": data}
    with contextlib.suppress(PlanError):
        timed(lambda: _runtime.render(text, mapping, KERNEL, INTEGERS))
    run = Run(HASH, 1, text, mapping, (1,), "candidate")
    done = timed(lambda: _runtime.substitute(WRAPPER, {HASH: run}))
    assert done.replaced or done.text == WRAPPER
    if done.replaced:
        # The wrapper stays Python, with only kernels that the compiler's own code does not name.
        assert [k for k in _runtime.read_wrapper(done.text).kernels if k.startswith("kernelopt_")]


def check_expression(text: Any) -> None:
    reason = timed(lambda: expressions.check(text, INTEGERS))
    try:
        result = timed(lambda: _runtime.evaluate(text, INTEGERS))
    except PlanError:
        return
    assert 0 <= result <= _runtime.LARGEST_INTEGER
    # What evaluates is of the language, but for the spellings that a plan may not have (not a text, not printable).
    assert reason is None or not isinstance(text, str) or not text.isprintable() or "takes 2 to 8" in reason


@fuzzed
@given(seeds)
def test_source(seed: int) -> None:
    check_source(hostile.source(Random(seed))[0])


@fuzzed
@given(seeds)
def test_plan(seed: int) -> None:
    random = Random(seed)
    text, plan = random.choice(hostile.CANDIDATES) if seed % 4 else hostile.source(random)
    check_plan(text, hostile.plan(random, plan))


@fuzzed
@given(st.one_of(
    seeds.map(lambda seed: hostile.value(Random(seed))), st.text(max_size=80),
    st.text("0123456789+-*/%(), xnumelindcvopwrfs_2", max_size=60),
    st.tuples(st.sampled_from(list(hostile.DEEP.values())), st.integers(1, 990)).map(lambda t: t[0](t[1])[:1001])))
def test_expression(text: Any) -> None:
    check_expression(text)


@pytest.mark.parametrize("n", [95, 250, 3000, 20_000])
def test_deep_or_long_source_is_a_verdict(n: int) -> None:
    for name, text in hostile.deep_sources(n).items():
        found = timed(lambda t=text: source_contract.check(t))
        # What is flat and not large may conform.
        assert found or n == 95 or name in ("statements", "parameters", "assignments", "comparisons", "commas"), name
        if len(text) <= source_contract.LIMIT_BYTES:
            assert len(timed(lambda t=text: _runtime.kernel_hash(t))) == 24


@pytest.mark.parametrize("text", hostile.DEEP.values(), ids=hostile.DEEP.keys())
def test_deep_expression_is_a_verdict(text: Callable[[int], str]) -> None:
    for n in (60, 190, 330, 499, 990):
        check_expression(text(n)[:1000])


def test_every_escape_reaches_every_function() -> None:
    for text in hostile.ESCAPES.values():
        check_source(text)
        check_plan(text, hostile.GOOD_PLAN)


def test_functions_that_call_each_other_deeply_are_a_verdict() -> None:
    text = hostile.chained(60, 90)
    assert source_contract.check(text) == []
    effects = flow.analyse(source_contract.functions(text), "k0", frozenset())
    assert {v.rule for v in effects.unknown} == {"flow"}


def test_a_chain_of_reversed_copies_ends() -> None:
    text = hostile.reversed_copies(8000)
    assert source_contract.check(text) == []
    effects = timed(lambda: flow.analyse(source_contract.functions(text), "k", frozenset({"x_ptr"})))
    assert {v.rule for v in effects.unknown} == {"flow"}


def test_short_chain_of_reversed_copies_is_followed() -> None:
    effects = flow.analyse(source_contract.functions(hostile.reversed_copies(50)), "k", frozenset({"x_ptr"}))
    assert (effects.stored, effects.unknown) == ({"x_ptr"}, set())


def test_a_huge_constant_of_the_module_is_refused() -> None:
    assert {v.rule for v in source_contract.check(hostile.GOOD + "X = 0x" + "f" * 6000 + "\n")} == {"constant"}


@pytest.mark.parametrize("name", ["a = 1\nimport os\nb", "a b", "", "\u00aa", "1a"])
def test_the_name_of_a_scratch_buffer_cannot_become_code(name: str) -> None:
    plan = {**hostile.GOOD_PLAN, "scratch": [{"name": name, "elements": "4", "dtype": "float32", "zeroed": False}]}
    with pytest.raises(PlanError, match="scratch"):
        _runtime.render(hostile.GOOD, plan, KERNEL, INTEGERS)


_AUDITED = """
import json, sys
from random import Random
from tests.contract import hostile, test_fuzz as fuzz
events = {}
watching = False
def hook(event, arguments):
    # CPython itself looks for the line of a syntax error in a file of the text's name.
    if watching and event not in ALLOWED and (event, *arguments[:2]) != ("open", "<unknown>", "rb"):
        events.setdefault(event, repr(arguments)[:200])
ALLOWED = {"compile", "builtins.id"}
def made(seed):
    random = Random(seed)
    text, plan = hostile.source(random)
    good, fitting = hostile.CANDIDATES[seed % 3]
    return text, hostile.plan(random, plan), good, hostile.plan(random, fitting), hostile.value(random)
def everything(inputs):
    for text in hostile.ESCAPES.values():
        fuzz.check_source(text)
    for text, plan, good, other, value in inputs:
        fuzz.check_source(text)
        fuzz.check_plan(text, plan)
        fuzz.check_plan(good, other)
        fuzz.check_expression(value)
inputs = [made(seed) for seed in range(100)]
everything(inputs[:3])
sys.addaudithook(hook)
watching = True
everything(inputs[3:])
if len(sys.argv) > 1:
    open("canary", "w").close()
watching = False
print(json.dumps(events))
"""


def audited(folder: Path, *arguments: str) -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", _AUDITED, *arguments], cwd=folder, capture_output=True, text=True,
                          timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-2000:]
    events: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return events


def test_nothing_is_opened_run_or_imported(tmp_path: Path) -> None:
    assert audited(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_audit_would_notice(tmp_path: Path) -> None:
    assert "open" in audited(tmp_path, "write")
