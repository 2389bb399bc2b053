from __future__ import annotations

import ast

import pytest

from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.playbook.row_pipeline import TECHNIQUE, Pipeline, _order
from tests.playbook.examples import ONE_PROCESSOR
from tests.playbook.sites import H200, calls, grown, site


def order(pipeline: Pipeline) -> list[tuple[bool, int, int]]:
    """(second pass, row, chunk) of each ticket, by running the emitted arithmetic."""
    assigned: list[ast.stmt] = []
    assigned += [s for s in _order(pipeline, "reduce()", "apply()") if isinstance(s, ast.Assign)]
    code = compile(ast.fix_missing_locations(ast.Module(assigned[1:], [])), "order", "exec")

    class Language:
        @staticmethod
        def where(condition: bool, one: int, other: int) -> int:
            return one if condition else other

    found = []
    for ticket in range(2 * pipeline.rows * pipeline.chunks):
        names = {"ticket": ticket, "tl": Language}
        exec(code, names)
        found.append((bool(names["applies"]), names["row"], names["chunk"]))
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("pipeline", [Pipeline(8, 3, 5, 2), Pipeline(8, 1, 2, 1), Pipeline(8, 4, 9, 8)])
def test_every_chunk_is_done_once_a_pass_and_never_waits_for_a_later_ticket(pipeline: Pipeline) -> None:
    found = order(pipeline)
    every = {(a, r, c) for a in (False, True) for r in range(pipeline.rows) for c in range(pipeline.chunks)}
    assert len(found) == len(every) and set(found) == every
    place = {item: n for n, item in enumerate(found)}
    for applies, row, chunk in found:
        if applies:
            reduced = [place[False, row, c] for c in range(pipeline.chunks)]
            assert max(reduced) < place[True, row, chunk]
            # No further behind than its lead: the row is still in the cache.
            assert place[True, row, 0] - min(reduced) <= 2 * pipeline.ahead * pipeline.chunks


def test_rows_between_their_passes_fit_the_cache() -> None:
    call = grown(calls("softmax_3x2051")[0], "2051", "393216")
    many = {**call, "source": call["source"].replace("xnumel = 3\n", "xnumel = 4096\n")}
    found = list(TECHNIQUE.propose(site(many)))
    assert found and TECHNIQUE.applies(site(many)) is not None
    for candidate in found:
        ahead = int(candidate.rationale.split(" rows ahead")[0].split()[-1])
        assert 2 * ahead * 393216 * 4 <= 0.5 * H200.l2_bytes
    small = Roofs("small", "", 1e12, {}, 1 << 20, 132, "assumed")
    assert TECHNIQUE.applies(site(many, roofs=small)) is None


@pytest.mark.parametrize(("name", "old", "new"), [
    ("softmax_3x2051", "2051", "9001"), ("logsumexp_3x4100", "4100", "20001"), ("argmax_3x5001", "5001", "20001"),
    ("rowsum_2x90x33", "90", "20001")])
def test_short_rows_and_other_passes_are_left(name: str, old: str, new: str) -> None:
    assert TECHNIQUE.applies(site(grown(calls(name)[0], old, new), roofs=ONE_PROCESSOR)) is None


def test_what_is_written_must_not_be_what_is_read() -> None:
    call = grown(calls("softmax_3x2051")[0], "2051", "20001")
    assert TECHNIQUE.applies(site(call, roofs=ONE_PROCESSOR)) is not None
    shared = {**call, "arguments": [call["arguments"][0], call["arguments"][0], *call["arguments"][2:]]}
    assert TECHNIQUE.applies(site(shared, roofs=ONE_PROCESSOR)) is None


def test_a_chunk_is_one_block_without_running_updates() -> None:
    for name, old in (("softmax_3x2051", "2051"), ("layernorm_3x2050", "2050")):
        source = next(TECHNIQUE.propose(site(grown(calls(name)[0], old, "20001"), roofs=ONE_PROCESSOR))).source
        assert "online_softmax_combine" not in source and "welford_reduce" not in source and "for " not in source
