"""What the model may still cost: every call is covered by its worst case before it is made, and settled after it.

The worst case of a call is one call, as many tokens as its prompt has bytes (a byte-level tokenizer never makes more)
plus the most tokens of its answer, their price without any cache, and its time-out. What is reserved counts as
spent, so that calls of several threads cannot together pass a limit that each of them keeps. The ledger is a file of
one JSON line a reservation or settlement, on disk before the call goes out: after a crash, what was reserved and
never settled counts as spent, since nobody knows what became of it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelopt_bot.agents.messages import Spent, Tokens
from kernelopt_bot.agents.settings import Limits, Price
from kernelopt_bot.errors import InputError, Unavailable

LEDGER = "spend.jsonl"
"""In the run's folder."""
SCHEMA = 1
LEAST_S = 1.0
"""A call that may not last a second is not made."""


@dataclass(frozen=True)
class Cost:
    """`nano_usd` in billionths of a US dollar, so that sums are exact; 0 without a price."""

    calls: int = 0
    input: int = 0
    output: int = 0
    nano_usd: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output

    @property
    def usd(self) -> float:
        return self.nano_usd / 1e9

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.calls + other.calls, self.input + other.input, self.output + other.output,
                    self.nano_usd + other.nano_usd)


@dataclass(frozen=True)
class Reservation:
    id: int
    role: str
    model: str
    worst: Cost
    seconds: float
    """How long the call may take."""


@dataclass(frozen=True)
class Spending:
    """Of a run: `settled` for certain, `reserved` on top of it at most."""

    settled: Cost
    reserved: Cost
    wall_s: float
    by_role: Mapping[str, Cost]
    unpriced: bool
    """Some calls are not in the money, for lack of a price."""


class Ledger:
    """One run's spending, shared by all threads of one process.

    Raises InputError where money is limited and a model of `models` has no price, Unavailable where the file cannot be
    written or is no ledger.
    """

    def __init__(self, path: Path, limits: Limits, prices: Sequence[Price], models: Sequence[str] = (), *,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._prices = {p.model: p for p in prices}
        for model in models:
            self._priced(model)
        self._lock = threading.Lock()
        self._open: dict[int, Reservation] = {}
        self._roles: dict[str, Cost] = {}
        self._settled = Cost()
        self._wall_s, self._since = 0.0, 0.0
        self._unpriced = False
        self._next = 1
        self._path = path
        self._load()

    def reserve(self, role: str, model: str, *, prompt_bytes: int, max_output: int, seconds: float) -> Reservation:
        """Cover one call, or raise Spent with the limit in words; InputError as the constructor; Unavailable.

        `prompt_bytes` of UTF-8, of messages and schema; `max_output` in tokens.
        """
        price = self._priced(model)
        worst = Cost(1, prompt_bytes, max_output, _nano(price, Tokens(input=prompt_bytes, output=max_output)))
        with self._lock:
            self._tick()
            if why := self._exceeded(worst):
                raise Spent(why)
            left = math.inf if self._limits.wall_s is None else self._limits.wall_s - self._wall_s
            reservation = Reservation(self._next, role, model, worst, min(seconds, left))
            self._write("reserved", reservation, worst)
            self._next += 1
            self._unpriced |= price is None
            self._open[reservation.id] = reservation
            return reservation

    def settle(self, reservation: Reservation, usage: Tokens | None, *, free: bool = False) -> Cost:
        """Book what a call cost: what the server counted; the worst case where it did not; no tokens if `free`.

        Once for each reservation (KeyError otherwise). Raises Unavailable.
        """
        cost = reservation.worst
        if free:
            cost = Cost(calls=1)
        elif usage is not None:
            price = self._prices.get(reservation.model)
            cost = Cost(1, usage.input, usage.output, _nano(price, usage))
        with self._lock:
            self._tick()
            del self._open[reservation.id]
            self._book(reservation.role, cost)
            self._write("settled", reservation, cost)
        return cost

    def spending(self) -> Spending:
        with self._lock:
            self._tick()
            return Spending(self._settled, self._reserved(), self._wall_s, dict(self._roles), self._unpriced)

    def exhausted(self) -> str:
        """Which limit leaves no room for even the smallest call, in words; '' if none does."""
        with self._lock:
            self._tick()
            return self._exceeded(Cost(calls=1, input=1, output=1))

    def _exceeded(self, more: Cost) -> str:
        limits, total = self._limits, self._settled + self._reserved() + more
        if limits.calls is not None and total.calls > limits.calls:
            return f"the {limits.calls} calls to the model are spent"
        if limits.tokens is not None and total.tokens > limits.tokens:
            return f"the next call might pass the limit of {limits.tokens} tokens"
        if limits.money_usd is not None and total.nano_usd > round(limits.money_usd * 1e9):
            return f"the next call might pass the limit of {limits.money_usd:.2f} US dollars"
        if limits.wall_s is not None and self._wall_s + LEAST_S > limits.wall_s:
            return f"the {limits.wall_s:g} s for calls to the model are spent"
        return ""

    def _priced(self, model: str) -> Price | None:
        price = self._prices.get(model)
        if price is None and self._limits.money_usd is not None:
            raise InputError(f"the price of the model {model!r} is not known, but the money is limited",
                             where="agents.prices in .kernelopt.yml",
                             fix="add an entry for it, or set agents.limits.money_usd to null")
        return price

    def _reserved(self) -> Cost:
        return sum((r.worst for r in self._open.values()), Cost())

    def _book(self, role: str, cost: Cost) -> None:
        self._settled += cost
        self._roles[role] = self._roles.get(role, Cost()) + cost

    def _tick(self) -> None:
        now = self._clock()
        if self._open:
            self._wall_s += max(0.0, now - self._since)
        self._since = now

    def _load(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            data = self._path.read_bytes() if self._path.exists() else b""
        except OSError as e:
            raise _unwritable(e) from e
        # Without its newline the last line was torn by a crash before its call went out.
        whole = data[: data.rfind(b"\n") + 1]
        pending: dict[int, Reservation] = {}
        try:
            for line in whole.splitlines():
                self._replay(json.loads(line), pending)
        except (ValueError, KeyError, TypeError) as e:
            raise Unavailable("the record of what the model cost is damaged", where=self._path.name,
                              fix="start the run in a new folder") from e
        for reservation in pending.values():
            self._book(reservation.role, reservation.worst)
        # They may have run side by side; one after the other is the most that they can have taken.
        self._wall_s += sum(r.seconds for r in pending.values() if math.isfinite(r.seconds))
        if len(whole) != len(data):
            with contextlib.suppress(OSError):
                os.truncate(self._path, len(whole))
        # What a crash left open is closed, so that a second restart does not count it twice or differently.
        for reservation in pending.values():
            self._write("settled", reservation, reservation.worst)

    def _replay(self, line: Mapping[str, Any], pending: dict[int, Reservation]) -> None:
        if line["schema"] != SCHEMA:
            raise ValueError(f"schema {line['schema']}")
        cost, number = Cost(**line["cost"]), int(line["id"])
        self._wall_s = max(self._wall_s, float(line["wall_s"]))
        self._next = max(self._next, number + 1)
        self._unpriced |= bool(line["unpriced"])
        if line["state"] == "reserved":
            pending[number] = Reservation(number, line["role"], line["model"], cost, float(line["seconds"]))
        else:
            self._book(pending.pop(number).role, cost)

    def _write(self, state: str, reservation: Reservation, cost: Cost) -> None:
        line = {"schema": SCHEMA, "id": reservation.id, "state": state, "role": reservation.role,
                "model": reservation.model, "seconds": reservation.seconds, "wall_s": self._wall_s,
                "unpriced": reservation.model not in self._prices, "cost": vars(cost)}
        try:
            with self._path.open("ab") as file:
                start = file.tell()
                try:
                    file.write(json.dumps(line, sort_keys=True).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(file.fileno(), start)
                    raise
        except OSError as e:
            raise _unwritable(e) from e


def recorded(path: Path) -> Spending:
    """What a ledger's file says, without touching it: the run may still be going on. Lines that cannot be read are left
    out; `reserved` is what was reserved and never settled, under way or lost."""
    settled, wall_s, unpriced = Cost(), 0.0, False
    roles: dict[str, Cost] = {}
    pending: dict[int, Cost] = {}
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            data = json.loads(line)
            cost, role = Cost(**data["cost"]), str(data["role"])
            wall_s, unpriced = max(wall_s, float(data["wall_s"])), unpriced or bool(data["unpriced"])
            if data["state"] == "reserved":
                pending[int(data["id"])] = cost
                continue
            pending.pop(int(data["id"]), None)
            settled += cost
            roles[role] = roles.get(role, Cost()) + cost
    return Spending(settled, sum(pending.values(), Cost()), wall_s, roles, unpriced)


def tightened(limits: Limits, money_usd: float | None) -> Limits:
    """The limits with no more money than `money_usd`."""
    if money_usd is None or (limits.money_usd is not None and limits.money_usd <= money_usd):
        return limits
    return limits.model_copy(update={"money_usd": money_usd})


def _nano(price: Price | None, usage: Tokens) -> int:
    """A price of dollars a million tokens is one of a thousand billionths a token. Rounded up."""
    if price is None:
        return 0
    cached = price.input if price.cached_input is None else price.cached_input
    kept = min(max(usage.cached, 0), usage.input)
    exact = (usage.input - kept) * price.input + kept * cached + usage.output * price.output
    return math.ceil(round(exact * 1000, 6))


def _unwritable(error: OSError) -> Unavailable:
    return Unavailable(f"what the model costs cannot be recorded: {error.strerror or type(error).__name__}",
                       where=LEDGER, fix="choose a run folder that can be written; no call was made")

