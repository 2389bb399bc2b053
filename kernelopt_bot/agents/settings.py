"""The configuration's section `agents`: part of the policy, so always of the default branch or the base."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kernelopt_bot.agents.brain import ROLES, Role
from kernelopt_bot.agents.strategy_settings import Strategy

Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
ModelName = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9]?[A-Za-z0-9._:/@+-]*$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RoleModel(_Section):
    """What one role asks for; what is not given is as for all roles."""

    model: ModelName = Field(default="", description="Model of this role; empty: `agents.model`.")
    temperature: float | None = Field(default=None, ge=0.0, le=2.0, description=(
        "Sampling temperature of this role; null: `agents.temperature`."))
    effort: Effort = Field(default="", description="Reasoning effort of this role; empty: `agents.effort`.")
    max_output_tokens: int | None = Field(default=None, ge=256, le=1_000_000, description=(
        "Most tokens of an answer, reasoning included; null: `agents.max_output_tokens`."))


class Roles(_Section):
    """What single roles ask for."""

    profiler: RoleModel = Field(default=RoleModel(), description="Names each step's bottleneck.")
    planner: RoleModel = Field(default=RoleModel(), description="Chooses what to try, and where.")
    executor: RoleModel = Field(default=RoleModel(), description="Writes a candidate of a plan.")
    fuser: RoleModel = Field(default=RoleModel(), description="Writes one candidate for several steps.")
    summarizer: RoleModel = Field(default=RoleModel(), description="Says what is worth remembering.")


class Limits(_Section):
    """What the model may cost in one run, checked before each call; what a restart resumes goes on counting."""

    calls: int | None = Field(default=200, ge=0, le=1_000_000, description=(
        "Requests to the model, repeated ones included; null: no limit."))
    tokens: int | None = Field(default=2_000_000, ge=0, le=10**12, description=(
        "Tokens, those of prompts and those of answers together; null: no limit."))
    money_usd: float | None = Field(default=None, ge=0.0, le=1_000_000.0, description=(
        "US dollars by the table `agents.prices`, which must then have every model that is asked; null: no limit."))
    wall_s: float | None = Field(default=None, ge=0.0, le=864_000.0, description=(
        "Seconds during which at least one request is under way; null: no limit."))


class Price(_Section):
    """What one model costs, in US dollars for a million tokens."""

    model: ModelName = Field(description="Name of the model, as in `agents.model`.")
    input: float = Field(ge=0.0, le=100_000.0, description="A million tokens of prompts.")
    cached_input: float | None = Field(default=None, ge=0.0, le=100_000.0, description=(
        "A million tokens of prompts that the server had cached; null: as `input`."))
    output: float = Field(ge=0.0, le=100_000.0, description="A million tokens of answers, reasoning included.")


class Agents(_Section):
    """Which model is asked, and how. Without one, only built-in brains propose and nothing leaves the machine."""

    model: ModelName = Field(default="", description=(
        "Name of the model as its server knows it; empty: none is asked, and nothing leaves the machine."))
    base_url: str = Field(default="https://api.openai.com/v1", min_length=1, max_length=500, description=(
        "Where an OpenAI-compatible server answers."))
    key_variable: str = Field(default="OPENAI_API_KEY", pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,99})?$", description=(
        "Environment variable that holds the server's key, taken out of the environment at the start; empty: the "
        "server wants none."))
    api: Literal["chat", "responses"] = Field(default="chat", description=(
        "Which of the two interfaces is used: Chat Completions or Responses."))
    structured: Literal["auto", "strict", "json", "off"] = Field(default="auto", description=(
        "How the answer's form is asked for: strict: by JSON Schema; json: any JSON object; off: by words alone; "
        "auto: the first of these that the server takes."))
    stream: bool = Field(default=True, description=(
        "Take answers as a stream, so that one that stalls is noticed after `idle_s`."))
    temperature: float | None = Field(default=None, ge=0.0, le=2.0, description=(
        "Sampling temperature; null: the server's own (reasoning models take no other)."))
    effort: Effort = Field(default="", description="Reasoning effort; empty: the server's own.")
    max_output_tokens: int = Field(default=16_384, ge=256, le=1_000_000, description=(
        "Most tokens of an answer, reasoning included."))
    prompt_tokens: int = Field(default=24_000, ge=6_000, le=1_000_000, description=(
        "Most tokens of a prompt, estimated; what is over is left out by rule, and the prompt says so."))
    parallel: int = Field(default=2, ge=1, le=64, description="Requests under way at once.")
    timeout_s: float = Field(default=300.0, gt=0.0, le=7200.0, description="Seconds for one request.")
    idle_s: float = Field(default=60.0, gt=0.0, le=7200.0, description=(
        "Seconds without a sign of life after which a streamed answer is given up."))
    retries: int = Field(default=4, ge=0, le=20, description=(
        "How often a request is repeated after a fault of the server or of the connection."))
    retry_after_s: float = Field(default=120.0, ge=0.0, le=3600.0, description=(
        "Longest wait that a server may ask for; after a longer one the request is given up."))
    send_source: bool = Field(default=False, description=(
        "Whether the repository's own text may be sent: its source, comments and names. Otherwise only the code "
        "that the compiler generated (without comments, with neutral names), shapes and measurements are."))
    roles: Roles = Field(default=Roles(), description="What single roles ask for.")
    search: Strategy = Field(default=Strategy(), description="How the agents search.")
    limits: Limits = Field(default=Limits(), description="What the model may cost in one run.")
    prices: Annotated[tuple[Price, ...], Field(strict=False, max_length=200)] = Field(default=(), description=(
        "What models cost. Without its price a model can be asked as long as no money is limited."))

    @field_validator("base_url")
    @classmethod
    def _base_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("must be an http or https address without ? and #")
        if parts.username or parts.password:
            raise ValueError("must hold no user and no password; the key is read from `key_variable`")
        return value.rstrip("/")

    @field_validator("prices")
    @classmethod
    def _prices(cls, value: tuple[Price, ...]) -> tuple[Price, ...]:
        names = [p.model for p in value]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"the model {twice[0]} has more than one price")
        return value

    @model_validator(mode="after")
    def _known_prices(self) -> Agents:
        if self.limits.money_usd is not None and (unknown := self.unpriced):
            raise ValueError(f"limits.money_usd is set, but prices has no entry for the model {unknown[0]}")
        return self

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models that a role asks and that have no price."""
        asked = {self.of(role).model for role in ROLES} if self.model else set()
        return tuple(sorted(asked - {p.model for p in self.prices}))

    def of(self, role: Role) -> RoleModel:
        """What holds for a role; `temperature` stays None where the server's own is wanted."""
        own: RoleModel = getattr(self.roles, role)
        return RoleModel(
            model=own.model or self.model,
            temperature=self.temperature if own.temperature is None else own.temperature,
            effort=own.effort or self.effort,
            max_output_tokens=own.max_output_tokens or self.max_output_tokens)
