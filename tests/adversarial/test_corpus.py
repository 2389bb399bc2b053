"""Every case of the corpus through gates 1 and 2, with real workers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelopt_bot.config import Config
from kernelopt_bot.gates import corpus
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail

pytestmark = pytest.mark.slow

CASES = corpus.load(Path(__file__).parent)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[corpus.Runner]:
    folder = tmp_path_factory.mktemp("corpus")
    with (
        Worker("kernel", python=sys.executable, jail=ProcessJail(), scratch=folder / "compiler") as compiler,
        Worker("kernel", python=sys.executable, jail=ProcessJail(), scratch=folder / "checker",
               interpret=True) as checker,
    ):
        gates = Config().gates
        yield corpus.Runner([compiler], checker, "interpret", "tests/adversarial",
                            {"m": gates.m, "k": gates.k, "m_half": gates.m_half})


def test_the_corpus_is_large_enough() -> None:
    honest = sum(c.expect == "honest" for c in CASES)
    assert honest >= 20
    assert len(CASES) - honest >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(case: corpus.Case, runner: corpus.Runner) -> None:
    (outcome,) = runner.run([case])
    if outcome.skipped:
        pytest.skip(outcome.reason)
    assert outcome.right, f"{case.about} Expected {case.expect}, got {outcome.got}: {outcome.reason}"
    assert outcome.note == "", f"{outcome.got}: {outcome.reason}"
