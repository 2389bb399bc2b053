"""The ledger: no limit is ever passed, by any interleaving, restart or torn file."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelopt_bot.agents.messages import Spent, Tokens
from kernelopt_bot.agents.settings import Limits, Price
from kernelopt_bot.agents.spend import Cost, Ledger, Reservation, recorded, tightened
from kernelopt_bot.errors import InputError, Unavailable

PRICES = (Price(model="a", input=1.1, cached_input=0.3, output=4.7), Price(model="b", input=0.0, output=0.0))
FREE = Limits(calls=None, tokens=None)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


ACTIONS = st.lists(st.one_of(
    st.tuples(st.just("reserve"), st.sampled_from(["a", "b"]), st.integers(0, 5000), st.integers(1, 2000)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.just("unknown"), st.integers(0, 9), st.just(0), st.just(0)),
    st.tuples(st.just("free"), st.integers(0, 9), st.just(0), st.just(0)),
    st.tuples(st.just("wait"), st.floats(0, 20), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0), st.just(0))), max_size=40)
COUNTER = itertools.count()


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.integers(0, 12), st.integers(0, 20_000), st.floats(0, 0.02), st.floats(0, 60))
def test_no_sequence_passes_a_limit(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, object, object, object]], calls: int,
    tokens: int, usd: float, wall: float,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"ledger{next(COUNTER)}.jsonl"
    limits = Limits(calls=calls, tokens=tokens, money_usd=usd, wall_s=wall)
    clock = Clock()
    ledger = Ledger(path, limits, PRICES, clock=clock)
    open_: list[Reservation] = []
    for what, x, y, z in actions:
        if what == "reserve":
            assert isinstance(x, str) and isinstance(y, int) and isinstance(z, int)
            try:
                open_.append(ledger.reserve("executor", x, prompt_bytes=y, max_output=z, seconds=10.0))
            except Spent:
                continue
        elif what == "wait":
            assert isinstance(x, float)
            # A call ends when its time is up.
            clock.now += min([x, *(r.seconds for r in open_)])
        elif what == "restart":
            before = ledger.spending()
            # The same clock as another process would see it: it begins anew.
            clock = Clock()
            ledger, open_ = Ledger(path, limits, PRICES, clock=clock), []
            after = ledger.spending()
            assert after.settled == before.settled + before.reserved and after.reserved == Cost()
            assert Ledger(path, limits, PRICES, clock=Clock()).spending() == after
        elif open_:
            assert isinstance(x, int)
            r = open_.pop(x % len(open_))
            if what == "free":
                assert ledger.settle(r, None, free=True) == Cost(calls=1)
            elif what == "unknown":
                assert ledger.settle(r, None) == r.worst
            else:
                assert isinstance(y, float) and isinstance(z, float)
                used = Tokens(input=int(r.worst.input * y), output=int(r.worst.output * z), cached=int(3 * z))
                assert ledger.settle(r, used).nano_usd <= r.worst.nano_usd
        if path.exists():
            seen, own = recorded(path), ledger.spending()
            assert (seen.settled, seen.reserved, seen.by_role) == (own.settled, own.reserved, own.by_role)
        total = (s := ledger.spending()).settled + s.reserved
        assert total.calls <= calls and total.tokens <= tokens
        assert total.nano_usd <= round(usd * 1e9)
        assert sum((c for c in s.by_role.values()), Cost()) == s.settled


def test_the_worst_case_is_reserved_and_the_truth_is_settled(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "spend.jsonl", FREE, PRICES)
    r = ledger.reserve("planner", "a", prompt_bytes=1_000_000, max_output=1_000_000, seconds=5)
    assert r.worst == Cost(1, 1_000_000, 1_000_000, 5_800_000_000)
    cost = ledger.settle(r, Tokens(input=200_000, cached=100_000, output=10_000))
    assert cost.usd == pytest.approx(0.1 * 1.1 + 0.1 * 0.3 + 0.01 * 4.7)
    assert ledger.spending().by_role == {"planner": cost}
    with pytest.raises(KeyError):
        ledger.settle(r, None)


def test_what_a_crash_left_open_counts_as_spent(tmp_path: Path) -> None:
    path = tmp_path / "spend.jsonl"
    first = Ledger(path, FREE, PRICES)
    first.reserve("executor", "a", prompt_bytes=100, max_output=50, seconds=30)
    again = Ledger(path, Limits(calls=1, tokens=None), PRICES)
    assert (again.spending().settled.tokens, again.spending().wall_s) == (150, 30.0)
    with pytest.raises(Spent, match="1 calls"):
        again.reserve("executor", "a", prompt_bytes=1, max_output=1, seconds=1)


def test_a_torn_last_line_is_cut_off_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spend.jsonl"
    ledger = Ledger(path, FREE, PRICES)
    ledger.settle(ledger.reserve("executor", "a", prompt_bytes=10, max_output=5, seconds=1), Tokens(7, 0, 2))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"schema": 1, "id"')
    assert Ledger(path, FREE, PRICES).spending().settled.tokens == 9
    assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b'"schema": 1', b'"schema": 7', 1))
    with pytest.raises(Unavailable, match="damaged"):
        Ledger(path, FREE, PRICES)


def test_threads_together_keep_the_limit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "spend.jsonl", Limits(calls=40, tokens=None), ())
    made: list[int] = []

    def work() -> None:
        while True:
            try:
                r = ledger.reserve("executor", "c", prompt_bytes=1, max_output=1, seconds=1)
            except Spent:
                return
            ledger.settle(r, None)
            made.append(r.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(made) == list(range(1, 41))
    assert Ledger(tmp_path / "spend.jsonl", FREE, ()).spending().settled.calls == 40


def test_time_counts_once_however_many_calls_run(tmp_path: Path) -> None:
    clock = Clock()
    ledger = Ledger(tmp_path / "spend.jsonl", Limits(calls=None, tokens=None, wall_s=10), (), clock=clock)
    first, second = (ledger.reserve("executor", "c", prompt_bytes=1, max_output=1, seconds=60) for _ in range(2))
    assert first.seconds == 10
    clock.now = 4
    ledger.settle(first, None)
    ledger.settle(second, None)
    clock.now = 100
    assert ledger.spending().wall_s == 4
    assert ledger.exhausted() == ""
    third = ledger.reserve("executor", "c", prompt_bytes=1, max_output=1, seconds=60)
    assert third.seconds == 6
    clock.now = 106
    ledger.settle(third, None)
    assert "10 s" in ledger.exhausted()


def test_an_unknown_price_is_an_error_only_where_money_is_limited(tmp_path: Path) -> None:
    money = Limits(money_usd=1.0)
    with pytest.raises(InputError, match="'c' is not known"):
        Ledger(tmp_path / "a.jsonl", money, PRICES, models=["a", "c"])
    with pytest.raises(InputError):
        Ledger(tmp_path / "b.jsonl", money, PRICES).reserve("fuser", "c", prompt_bytes=1, max_output=1, seconds=1)
    ledger = Ledger(tmp_path / "c.jsonl", FREE, PRICES, models=["c"])
    ledger.reserve("fuser", "c", prompt_bytes=1, max_output=1, seconds=1)
    assert ledger.spending().unpriced


def test_a_call_is_not_covered_by_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "spend.jsonl", FREE, ())
    (tmp_path / "spend.jsonl").mkdir()
    with pytest.raises(Unavailable, match="no call was made"):
        ledger.reserve("executor", "c", prompt_bytes=1, max_output=1, seconds=1)
    assert ledger.spending().reserved == Cost()


def test_it_holds_no_prompt(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "spend.jsonl", FREE, PRICES)
    ledger.reserve("executor", "a", prompt_bytes=100, max_output=50, seconds=30)
    assert set(json.loads((tmp_path / "spend.jsonl").read_text())) == {
        "schema", "id", "state", "role", "model", "seconds", "wall_s", "unpriced", "cost"}


def test_limits_are_only_ever_tightened() -> None:
    assert tightened(Limits(), None) == Limits()
    assert tightened(Limits(money_usd=1.0), 5.0).money_usd == 1.0
    assert tightened(Limits(), 0.5).money_usd == 0.5


def test_the_worked_example_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "model.md").read_text()
    price = Price(model="m", input=2.0, cached_input=0.5, output=8.0)
    ledger = Ledger(tmp_path / "spend.jsonl", Limits(calls=None, tokens=None, money_usd=2.0), (price,))
    calls = 0
    with pytest.raises(Spent):
        while True:
            r = ledger.reserve("executor", "m", prompt_bytes=25_200, max_output=16_384, seconds=60)
            cost = ledger.settle(r, Tokens(7000, 3400, 3000))
            calls += 1
    left = 2.0 - ledger.spending().settled.usd
    for said in (f"| 25,200 | 16,384 | {r.worst.usd:.4f} |", f"| 7,000 | 3,000 | {cost.usd:.4f} |",
                 f"makes {calls} such calls", f"{r.worst.usd:.4f} dollars where {left:.4f} are left"):
        assert said in " ".join(text.split()), said
