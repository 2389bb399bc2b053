"""What came out of the search for one target. Everything a report says is in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import Candidate, Lever
from kernelopt_bot.device.profile import Profile
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.targets.target import Target


@dataclass(frozen=True)
class Comparison:
    """One arm against another, from interleaved pairs. Speedup is baseline time / candidate time."""

    baseline: str
    candidate: str
    metric: str
    """`latency` or `throughput`."""
    cache: str
    """`cold` or `warm`."""
    speedup: float
    low: float
    high: float
    """Bounds of the 95% paired bootstrap interval."""
    baseline_ms: float
    candidate_ms: float
    pairs: int


@dataclass(frozen=True)
class Noise:
    """The baseline against itself (A/A)."""

    speedup: float
    low: float
    high: float
    pairs: int


WORTHWHILE = 1.02
"""Step speedup below which a candidate is not worth its gates: the noise of a race of a few blocks."""


@dataclass(frozen=True)
class Trial:
    """One candidate and how far it came. `verdicts` in gate order, as far as it got."""

    candidate: Candidate
    verdicts: tuple[Verdict, ...]
    adopted: bool = False
    step_speedup: float | None = None
    """Diagnostic: the replaced run alone, baseline / candidate device time."""
    before_us: float | None = None
    after_us: float | None = None
    note: str = ""

    @property
    def won(self) -> bool:
        """Whether it won its race of steps by enough."""
        return self.step_speedup is not None and self.step_speedup >= WORTHWHILE

    @property
    def stopped_by(self) -> Verdict | None:
        """The first verdict that did not let it on, if any."""
        return next((v for v in self.verdicts if not v.lets_on), None)


@dataclass(frozen=True)
class LeverGain:
    """Gain of a lever on top of the levers before it, at model level (1.0 if it adopted nothing)."""

    lever: Lever
    adopted: int
    comparison: Comparison | None
    reason: str = ""


@dataclass(frozen=True)
class FirstCall:
    """Seconds from `optimize()` to the first output, in a fresh process."""

    cold_s: float
    warm_s: float
    baseline_cold_s: float
    baseline_warm_s: float


@dataclass(frozen=True)
class TargetResult:
    target: Target
    program: Program | None
    profile: Profile | None
    trials: tuple[Trial, ...]
    levers: tuple[LeverGain, ...]
    stitched: tuple[Verdict, ...]
    """Gates 3 and 4 of the stitched whole (empty if nothing was adopted)."""
    headline: Comparison | None
    """Against the best applicable baseline, from the confirmation; None if nothing was adopted."""
    against: tuple[Comparison, ...]
    """Against eager, default, reduce-overhead, max-autotune, those that apply."""
    not_applicable: Mapping[str, str]
    """Baseline -> why it was not measured."""
    noise: Noise | None
    first_call: FirstCall | None
    peak_memory: Mapping[str, int]
    """Arm -> bytes."""
    covered: tuple[str, ...]
    """Input shapes and dtypes that were verified, `x: (8, 128, 256) float32`."""
    artifact: str = ""
    """Folder of the written artifact, relative to the package root; '' if nothing was adopted."""
    error: str = ""
    """Why this target could not be handled; everything else may then be empty. The baseline stays."""
    secret: str = ""
    """The seed secrets, revealed after the verdicts: the search's and, after a comma, the confirmation's."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    """`wall_s`, `device_s`, `candidates`."""
    limit: str = ""
    """The limit of the budget that was reached before the levers `unreached`, in words; '' if none was."""
    unreached: tuple[Lever, ...] = ()
    inputs_origin: str = ""
    interrupted: bool = False
    """The user or the runner ended the search; `trials` holds what was judged until then."""
    bad_input: bool = False
    """The error is in the model or its inputs, not in this machine."""
    error_kind: str = ""
    """The error's kind, one word that machines tell apart (`out_of_memory`, `no_graphs`, ...); '' without an error."""
    agents: tuple[str, ...] = ()
    """What the report says of the agents' search, a sentence each; () where only built-in techniques proposed."""
    sets: Mapping[str, Comparison] = field(default_factory=dict)
    """`LEVER+LEVER` -> gain over the default of what those levers adopted, where others adopted more; with `benchmark`
    only."""
    edits: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the checkout, by path, that the result changes in place, with their new contents."""
    edited: Mapping[str, bytes] = field(default_factory=dict)
    """The same files as they were when the search read them: people go on editing meanwhile."""


@dataclass(frozen=True)
class RunResult:
    results: tuple[TargetResult, ...]
    command: str
    skipped: tuple[tuple[str, str], ...] = ()
    base_sha: str = ""
    head_sha: str = ""
    repository: str = ""
    pull_request: int | None = None
    stopped: str = ""
    """Why the run ended early ('' if it did not): what is in `results` is still verified."""
