"""The numbers of the agents' search. Defaults are those reported of KernelOPT (arXiv:2609.30059, sections 4.3, 4.5)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Strategy(BaseModel):
    """How the agents search: rounds of plans, each carried out and mended, the best kept as beginnings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rounds: int = Field(default=5, ge=0, le=100, description="Rounds of planning (T); 0: no brain but the built-in.")
    plans: int = Field(default=4, ge=1, le=32, description="Plans carried out in a round (N).")
    retries: int = Field(default=4, ge=0, le=16, description=(
        "How often a candidate that failed goes back to the executor with the evidence (K)."))
    beam: int = Field(default=4, ge=1, le=64, description="Candidates of a spot that further ones may start from (B).")
    spots: int = Field(default=8, ge=1, le=200, description="Spots that the planner is shown, most savings first.")
    exploration: float = Field(default=1.4, ge=0.0, le=100.0, description=(
        "Weight of what was tried seldom against what did well (c of UCB1)."))
    meltdown_window: int = Field(default=6, ge=2, le=100, description=(
        "So many last plans are looked at for a meltdown."))
    meltdown_directions: int = Field(default=2, ge=1, le=100, description=(
        "With at most so many different directions among them, other ones are enforced."))
    near_optimal: float = Field(default=0.8, gt=0.0, le=1.0, description=(
        "Share of a roof above which a spot counts as near-optimal, and is not planned for."))
    check_above: float = Field(default=0.8, ge=0.0, le=1.0, description=(
        "Step speedup from which a candidate is worth its correctness gate; slower ones are remembered only."))
    memory: int = Field(default=8, ge=0, le=200, description="Experiences that are kept (Q).")
    memory_gain: float = Field(default=1.05, ge=1.0, le=10.0, description=(
        "Step speedup from which a gain is an experience."))
    memory_loss: float = Field(default=1.2, ge=1.0, le=10.0, description=(
        "Step slowdown from which a loss is an experience."))
    avoid_after: int = Field(default=3, ge=1, le=100, description="Attempts after which a direction can be avoided.")
    avoid_below: float = Field(default=0.3, ge=0.0, le=1.0, description=(
        "Share of successes below which it is avoided."))
    history: int = Field(default=24, ge=0, le=500, description="Last attempts that the planner is told of.")
