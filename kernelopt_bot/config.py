"""`.kernelopt.yml` -> one frozen `Config`. Unknown keys are errors; every value has a range.

The policy (everything but `targets`) comes from the default branch, `targets` from the head as untrusted data:
`config_sources.py` joins the two, and the folders under `roots` that list targets of their own.
"""

from __future__ import annotations

import difflib
import keyword
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kernelopt_bot import config_yaml
from kernelopt_bot.agents.settings import Agents
from kernelopt_bot.errors import InputError
from kernelopt_bot.events.settings import Commands, Events, Runner

FILES = (".kernelopt.yml", ".github/kernelopt.yml")
"""Where the configuration may be, relative to the root. Only one of them may exist."""
LISTS = ("targets", "kernels")
"""What a pull request's own file may say: which things are to be optimised. All else is policy."""

REVIEWER = r"^@?[A-Za-z0-9][A-Za-z0-9-]{0,38}(/[A-Za-z0-9._-]{1,100})?$"
IDENTIFIER = r"^[^\W\d]\w*$"
MOST_SHOWN = 10
LeverName = Literal["kernel", "dispatch", "launch", "region"]


def _confined(value: str) -> str:
    path = PurePosixPath(value)
    if not value.isprintable() or value != value.strip() or "\\" in value:
        raise ValueError("must be printable, with / between folders and no space at its ends")
    if not value or path.is_absolute() or ".." in path.parts:
        raise ValueError("must be a path relative to the repository root, without ..")
    return str(path)


def _python_file(value: str) -> str:
    if not value.endswith(".py"):
        raise ValueError("must be a Python file (.py)")
    return _confined(value)


def _function(value: str) -> str:
    file, colon, function = value.rpartition(":")
    if not function.isidentifier():
        raise ValueError("must be the name of a function, or other/file.py:function")
    return f"{_confined(file)}:{function}" if colon else value


Root = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_confined)]
PythonFile = Annotated[str, AfterValidator(_python_file)]


class _Model(BaseModel):
    # strict: `seeds: "3"` or `draft: "no"` is a mistake to show, not a value to guess.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Environment(_Model):
    """The interpreter that runs the models."""

    python: str = Field(default="", max_length=4096, description=(
        "Interpreter that has torch, triton and the models' packages; empty: the one that runs KernelOPT. "
        "A relative path starts at the repository root."))


class TargetConfig(_Model):
    """One model to optimise."""

    name: str = Field(default="", pattern=r"^([A-Za-z][A-Za-z0-9_]{0,99})?$", description=(
        "Name of the target and of its artifact folder; empty: derived from path and entry."))
    path: PythonFile = Field(description="Python file with the model, relative to the repository root.")
    entry: str = Field(default="Model", pattern=IDENTIFIER, description=(
        "Class of the model in that file, or a function there that builds it."))
    inputs: str = Field(default="get_inputs", description=(
        "Function that returns the list of forward's arguments; `other/file.py:function` if it is elsewhere."))
    init: str = Field(default="", description=(
        "Function that returns the constructor's arguments, as a list or as a dict of keywords; "
        "`other/file.py:function` if it is elsewhere; empty: `get_init_inputs` where the file has it, else none."))
    mode: Literal["inference"] = Field(default="inference", description="How the model is called.")
    wire: str = Field(default="", description=(
        "Where the model is built, as `path/to/file.py:function` or `path/to/file.py:Class.method`: the pull request "
        "then also makes the two-line change of the call site there; empty: it only shows it."))

    @field_validator("name", "entry")
    @classmethod
    def _name(cls, value: str) -> str:
        if keyword.iskeyword(value):
            raise ValueError("must not be a word of Python's own")
        return value

    @field_validator("inputs", "init")
    @classmethod
    def _called(cls, value: str, info: Any) -> str:
        return _function(value) if value or info.field_name != "init" else value

    @field_validator("wire")
    @classmethod
    def _wire(cls, value: str) -> str:
        if not value:
            return value
        file, _, function = value.rpartition(":")
        if not file.endswith(".py") or not all(part.isidentifier() for part in function.split(".")):
            raise ValueError("must be path/to/file.py:function or path/to/file.py:Class.method")
        return f"{_confined(file)}:{function}"


class KernelConfig(_Model):
    """One standalone Triton kernel to optimise."""

    name: str = Field(default="", pattern=r"^([A-Za-z][A-Za-z0-9_]{0,99})?$", description=(
        "Name of the target; empty: derived from path and kernel."))
    path: PythonFile = Field(description="Python file with the kernel, relative to the repository root.")
    kernel: str = Field(pattern=IDENTIFIER, description="Function under `@triton.jit` in that file.")
    inputs: str = Field(default="", description=(
        "Function that calls what launches the kernel, or returns functions that do; `other/file.py:function` if it "
        "is elsewhere."))
    record: str = Field(default="", max_length=1000, description=(
        "Test that launches the kernel, as pytest names it (`tests/test_ops.py::test_softmax`), instead of `inputs`."))

    @field_validator("inputs")
    @classmethod
    def _called(cls, value: str) -> str:
        return _function(value) if value else value

    @field_validator("record")
    @classmethod
    def _test(cls, value: str) -> str:
        file, colons, test = value.partition("::")
        if value and not (file.endswith(".py") and colons and test.isprintable()):
            raise ValueError("must be a test as pytest names it, tests/test_ops.py::test_softmax")
        return f"{_confined(file)}::{test}" if value else value

    @model_validator(mode="after")
    def _one(self) -> KernelConfig:
        if bool(self.inputs) == bool(self.record):
            raise ValueError("give inputs or record, and one of them only")
        return self


class Artifact(_Model):
    """Where adopted kernels are written."""

    root: str = Field(default="kernelopt_kernels", description=(
        "Folder of the artifacts, relative to the repository root; put it inside your package to ship it."))

    @field_validator("root")
    @classmethod
    def _root(cls, value: str) -> str:
        path = _confined(value)
        if not all(part.isidentifier() and not keyword.iskeyword(part) for part in PurePosixPath(path).parts):
            raise ValueError("every folder of it must be importable: letters, digits and underscores")
        return path


class Gates(_Model):
    """What a candidate must hold."""

    min_gain: float = Field(default=1.03, ge=1.0, le=10.0, description=(
        "Smallest speedup: the lower bound of the confidence interval must be above it (1.03 is 3%)."))
    metric: Literal["latency", "throughput"] = Field(default="latency", description=(
        "What decides: the time of one synchronised call, or of calls back to back. The other may not regress."))
    cache: Literal["cold", "warm"] = Field(default="cold", description=(
        "Whether the L2 cache is flushed before the call that decides. The other may not regress."))
    no_regress: float = Field(default=0.97, ge=0.5, le=1.0, description=(
        "Smallest speedup permitted for the metric and the cache state that do not decide."))
    confidence: float = Field(default=0.95, ge=0.8, le=0.999, description="Coverage of the confidence interval.")
    memory_limit: float = Field(default=1.10, ge=1.0, le=10.0, description=(
        "Largest peak memory, as a ratio of the baseline's."))
    memory_slack_mib: int = Field(default=256, ge=0, le=1 << 20, description=(
        "Peak memory in MiB that is always permitted on top of the baseline's: small models may keep a CUDA graph."))
    m: float = Field(default=2.0, ge=1.0, le=10.0, description=(
        "Error limit against float64: m times the baseline's error, plus k times the dtype's epsilon."))
    m_half: float = Field(default=3.0, ge=1.0, le=10.0, description="The same factor for float16 and bfloat16.")
    k: float = Field(default=5.0, ge=0.0, le=16.0, description=(
        "Error always permitted, in epsilons of the dtype times the root mean square of the reference (its maximum, "
        "for the maximum error). Calibrated: docs/gates.md."))
    seeds: int = Field(default=3, ge=1, le=100, description="Input draws of the model gate.")
    inits: int = Field(default=2, ge=1, le=20, description="Initialisations of the model in the model gate.")
    sanitizer: Literal["auto", "off"] = Field(default="auto", description=(
        "auto: where compute-sanitizer is installed, kernels that would be kept also pass its memcheck and racecheck."))


class Budget(_Model):
    """When the search stops. What was verified until then is kept."""

    wall_s: float = Field(default=600.0, ge=1.0, le=86_400.0, description="Wall time for a target, in seconds.")
    search_s: float = Field(default=86_400.0, ge=1.0, le=86_400.0, description=(
        "Wall time for a target's levers alone, after it was loaded, captured and profiled, in seconds."))
    gpu_minutes: float = Field(default=20.0, gt=0.0, le=1440.0, description="GPU time for a run, in minutes.")
    gpu_wait_s: float = Field(default=60.0, ge=0.0, le=86_400.0, description=(
        "Seconds to wait for a GPU that others use, before the run is given up."))
    candidates: int = Field(default=200, ge=1, le=100_000, description="Candidates for a target.")


class Publish(_Model):
    """How the result is offered."""

    branch_prefix: str = Field(default="kernelopt-", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,49}-$", description=(
        "Beginning of the names of our branches. Flat and ending in -, since a branch `a` blocks `a/b`."))
    labels: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=50)], ...],
                      Field(strict=False, max_length=20)] = Field(default=(), description="Labels of the pull request.")
    reviewers: Annotated[tuple[Annotated[str, Field(pattern=REVIEWER)], ...],
                         Field(strict=False, max_length=15)] = Field(default=(), description=(
        "Who is asked to review: logins, or organisation/team; empty: CODEOWNERS of the artifact, else the author of "
        "the pull request that caused it. At most 5 are asked."))
    draft: bool = Field(default=False, description="Open the pull request as a draft.")
    commit_message: str = Field(
        default="perf: verified faster kernels for {targets}", min_length=1, max_length=200, description=(
            "First line of the commit and title of the pull request; {targets} is replaced by the targets' names."))

    @field_validator("commit_message")
    @classmethod
    def _message(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("must be one line")
        try:
            fields = {field[1:] for field in string.Formatter().parse(value) if field[1] is not None}
        except ValueError:
            fields = {(value, "", None)}
        # A format such as {targets:>9999999999} would take the memory of the job that publishes.
        if fields - {("targets", "", None)}:
            raise ValueError("the only placeholder is {targets}; write other braces twice")
        return value


class Sweep(_Model):
    """What the nightly sweep may do: it verifies committed artifacts, then looks for new gains."""

    gpu_minutes: float = Field(default=60.0, gt=0.0, le=1440.0, description="GPU time for a sweep, in minutes.")
    open_pull_requests: int = Field(default=3, ge=0, le=100, description=(
        "With so many of our pull requests open, a sweep verifies and reports but searches nothing new."))
    targets: int = Field(default=5, ge=0, le=1000, description="Targets that one sweep searches at most.")
    reverify_days: float = Field(default=7.0, ge=0.0, le=365.0, description=(
        "Days after which an artifact is verified again on an unchanged stack; on a changed one it always is."))
    dashboard: bool = Field(default=False, description=(
        "Keep an issue with targets, gains held, stale artifacts and the last sweep."))


class Config(_Model):
    """Everything a run can be told."""

    version: Literal[1] = Field(default=1, description="Version of this format.")
    roots: Annotated[tuple[Root, ...], Field(strict=False, max_length=200)] = Field(default=(), description=(
        "Folders of a repository with several projects. Each may have a .kernelopt.yml of its own that lists "
        "`targets` and `kernels`, with paths that start at that folder, and nothing else."))
    environment: Environment = Field(default=Environment(), description="The interpreter that runs the models.")
    targets: Annotated[tuple[TargetConfig, ...], Field(strict=False, max_length=1000)] = Field(default=(), description=(
        "Models to optimise, beside those found by convention (class Model with get_inputs in its file)."))
    kernels: Annotated[tuple[KernelConfig, ...], Field(strict=False, max_length=1000)] = Field(
        default=(), description="Standalone Triton kernels to optimise, beside those with a marker in their file.")
    artifact: Artifact = Field(default=Artifact(), description="Where adopted kernels are written.")
    levers: Annotated[tuple[LeverName, ...], Field(strict=False, min_length=1)] = Field(
        default=("kernel", "dispatch", "launch"), description=(
            "What may be changed; tried as dispatch, launch, region, kernel. `region` may replace vendor calls."))
    sandbox: Literal["auto", "docker", "bubblewrap", "landlock", "process"] = Field(default="auto", description=(
        "The jail of executed code; auto: the first that works of docker, bubblewrap, landlock. "
        "process isolates nothing and is used only when written here."))
    device: str = Field(default="auto", pattern=r"^(auto|cuda(:\d{1,3})?(,cuda:\d{1,3})*|cpu|pretend)$", description=(
        "auto: the GPU if there is one, else cpu; cuda or cuda:N; cpu; pretend: compile for a GPU that is not here; "
        "cuda:0,cuda:1: targets side by side, with the GPU minutes shared out."))
    gates: Gates = Field(default=Gates(), description="What a candidate must hold.")
    budget: Budget = Field(default=Budget(), description="When the search stops.")
    memory: bool = Field(default=True, description=(
        "Remember here what was adopted and what agents learnt; later searches start there and verify it all again."))
    agents: Agents = Field(default=Agents(), description="Which language model is asked, how, and at what cost.")
    benchmark: bool = Field(default=False, description=(
        "Also time the baselines where nothing was adopted, and the result without its `launch` and `region` levers; "
        "first calls are not timed."))
    publish: Publish = Field(default=Publish(), description="How the result is offered.")
    sweep: Sweep = Field(default=Sweep(), description="What the nightly sweep may do.")
    events: Events = Field(default=Events(), description="What starts a run by itself.")
    commands: Commands = Field(default=Commands(), description="Who may ask, and for how much.")
    runner: Runner = Field(default=Runner(), description="What is promised of the machine that executes.")

    @field_validator("levers")
    @classmethod
    def _levers(cls, value: tuple[LeverName, ...]) -> tuple[LeverName, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each lever at most once")
        return value

    @field_validator("targets", "kernels")
    @classmethod
    def _listed(cls, value: tuple[TargetConfig | KernelConfig, ...]) -> tuple[TargetConfig | KernelConfig, ...]:
        names = [t.name for t in value if t.name]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"the name {twice[0]} is given to more than one target")
        return value


@dataclass(frozen=True)
class Traced:
    """A configuration and where its values come from."""

    config: Config
    file: str = ""
    """Relative to the root; '' if there is none and all is default."""
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)
    files: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """(`targets` or `kernels`, index) -> the file that lists it, where that is not `file`."""

    def origin(self, path: tuple[str | int, ...]) -> str:
        """`.kernelopt.yml:12`, or `default`."""
        if path not in self.lines:
            return "default"
        key, index = str(path[0]), path[1] if len(path) > 1 else -1
        return f"{self.files.get((key, index), self.file) if isinstance(index, int) else self.file}:{self.lines[path]}"


def load(root: Path) -> Config:
    """The configuration of the folder `root`; all defaults if there is no file. Raises InputError."""
    return load_traced(root).config


def load_traced(root: Path) -> Traced:
    """As `load`, with the origin of each value. Raises InputError."""
    from kernelopt_bot.config_sources import folder_reader, joined

    reader = folder_reader(root)
    return joined(reader, reader)


def both_files() -> InputError:
    """The error for a root with two configurations."""
    return InputError("there are two configurations", where=" and ".join(FILES), fix="keep one of them")


def parse(text: str, name: str) -> Traced:
    """`text` of the file `name`. Raises InputError that names each wrong key, its line and what would be right."""
    document, data = _mapping(text, name)
    return Traced(_validated(data, document, name), name, document.lines)


def parse_targets(text: str, name: str, *, alone: bool = False) -> Traced:
    """Only `targets:` and `kernels:` of the file `name`; its other keys are the policy's and are not looked at.
    `alone`: the file is that of a folder under `roots`, where they are mistakes. Raises InputError as `parse` does."""
    document, data = _mapping(text, name)
    if alone and (other := sorted(set(data) - {*LISTS, "version"}, key=str)):
        raise InputError(f'unknown key "{other[0]}"', where=f"{name}:{document.line((other[0],))}",
                         fix="list only `targets` and `kernels` here; what else holds is in the root's configuration")
    kept = {key: value for key, value in data.items() if key in (*LISTS, "version")}
    lines = {path: line for path, line in document.lines.items() if path[0] in LISTS}
    return Traced(_validated(kept, document, name), name, lines)


def _mapping(text: str, name: str) -> tuple[config_yaml.Document, dict[Any, Any]]:
    document = config_yaml.read(text, name)
    if document.data is None:
        return document, {}
    if not isinstance(document.data, dict):
        raise InputError("the configuration is not a mapping of keys to values", where=f"{name}:1",
                         fix="begin with `version: 1`")
    # A section whose keys are all commented out reads as null.
    return document, {k: v for k, v in document.data.items() if v is not None or k not in Config.model_fields}


def _validated(data: dict[Any, Any], document: config_yaml.Document, name: str) -> Config:
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        problems = [_problem(e, document, name) for e in error.errors(include_url=False)]
    if len(problems) == 1:
        raise problems[0]
    raise several(problems)


def several(problems: Sequence[InputError]) -> InputError:
    """One error for some mistakes, each with its own place and its own advice."""
    shown = [f"{p.where}: {p.what}\n      {p.fix}" for p in problems[:MOST_SHOWN]]
    if more := len(problems) - len(shown):
        shown.append(f"and {more} more")
    return InputError(f"the configuration has {len(problems)} mistakes", where="\n    ".join(shown),
                      fix="correct each of them; `kernelopt config` prints what holds")


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the file, for editors and checkers."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": ".kernelopt.yml"}


def nearest(word: str, valid: list[str]) -> str:
    """The valid word that `word` was probably meant to be; '' if none is near."""
    close = difflib.get_close_matches(word, valid, n=1, cutoff=0.6)
    return close[0] if close else ""


def model_at(path: tuple[str | int, ...]) -> type[BaseModel]:
    """The model that holds the last key of `path`."""
    model: type[BaseModel] = Config
    for key in path[:-1]:
        if isinstance(key, int) or key not in model.model_fields:
            continue
        inner = model.model_fields[key].annotation
        for candidate in (inner, *get_args(inner)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
    return model


_WORDS = {
    "tuple_type": "must be a list", "model_type": "must be a mapping of keys to values",
    "bool_type": "must be true or false",
    "string_type": "must be text; put it in quotes", "string_pattern_mismatch": "is not a permitted value",
    "invalid_key": "keys must be text", "int_type": "must be a whole number", "float_type": "must be a number",
}
"""pydantic's kinds of error whose own words speak of Python rather than of YAML."""


def _problem(error: Any, document: config_yaml.Document, name: str) -> InputError:
    path: tuple[str | int, ...] = error["loc"]
    dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".") or "the file"
    where = f"{name}:{document.line(path)}"
    fields = sorted(model_at(path).model_fields)
    if error["type"] == "extra_forbidden":
        near = nearest(str(path[-1]), fields)
        fix = f'did you mean "{near}"?' if near else f"valid keys here: {', '.join(fields)}"
        return InputError(f'unknown key "{dotted}"', where=where, fix=fix)
    if error["type"] == "missing":
        return InputError(f'the key "{dotted}" is missing', where=where, fix=f"add `{path[-1]}:`")
    reason, meaning = explained(error)
    return InputError(f'"{dotted}": {reason} (it is {_shown(error["input"])})', where=where,
                      fix=f"correct the value. {meaning}")


def explained(error: Any) -> tuple[str, str]:
    """What is wrong with a value, of one of pydantic's errors, with what is permitted; and what the key means."""
    path: tuple[str | int, ...] = error["loc"]
    reason = _WORDS.get(error["type"], str(error["msg"]).removeprefix("Value error, "))
    reason = reason.replace("Input should be", "must be").replace("a valid ", "a ")
    key = next((p for p in reversed(path) if isinstance(p, str)), "")
    info = model_at(path).model_fields.get(key)
    return reason, (info.description if info else "") or "see docs/configuration.md"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
