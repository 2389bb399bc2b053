"""Configuration: values, mistakes shown at their line, schema and reference current."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kernelopt_bot.config import (
    FILES,
    Config,
    TargetConfig,
    Traced,
    json_schema,
    load,
    load_traced,
    parse,
)
from kernelopt_bot.config_reference import markdown
from kernelopt_bot.errors import InputError

DOCS = Path(__file__).parents[1] / "docs"
FULL = """\
version: 1
environment: {python: .venv/bin/python}
targets:
  - name: encoder
    path: models/net.py
    entry: Encoder
    inputs: examples/data.py:batch
    init: arguments
    mode: inference
    wire: app/serve.py:Server.start
roots: [services/a]
sweep: {gpu_minutes: 30, open_pull_requests: 1, targets: 2, reverify_days: 1, dashboard: true}
artifact: {root: package/kernels}
levers: [launch, region]
sandbox: bubblewrap
device: cuda:1
gates: {min_gain: 1.1, metric: throughput, cache: warm, m: 1.5, m_half: 2, k: 0, seeds: 5, inits: 1,
        confidence: 0.99, memory_limit: 2, no_regress: 1}
budget: {wall_s: 60, gpu_minutes: 0.5, candidates: 10}
publish: {branch_prefix: fast-, labels: [perf], draft: true, commit_message: "perf: {targets}"}
"""


def mistake(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse(text, ".kernelopt.yml")
    assert caught.value.exit_code == 2
    assert caught.value.where.startswith(".kernelopt.yml")
    assert caught.value.fix
    return caught.value


def test_no_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == Config()
    gates = Config().gates
    assert (gates.min_gain, gates.metric, gates.cache, gates.m, gates.m_half) == (1.03, "latency", "cold", 2.0, 3.0)
    assert (gates.confidence, gates.memory_limit, gates.no_regress) == (0.95, 1.10, 0.97)
    assert Config().levers == ("kernel", "dispatch", "launch")


@pytest.mark.parametrize("name", FILES)
def test_every_key_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(FULL)
    traced = load_traced(tmp_path)
    config = traced.config
    assert config.targets == (TargetConfig(name="encoder", path="models/net.py", entry="Encoder",
                                           inputs="examples/data.py:batch", init="arguments",
                                           wire="app/serve.py:Server.start"),)
    assert config.device == "cuda:1"
    assert config.gates.k == 0.0
    assert config.publish.labels == ("perf",)
    assert config.budget.gpu_minutes == 0.5
    assert traced.file == name
    assert traced.origin(("targets", 0, "entry")) == f"{name}:6"
    assert traced.origin(("gates", "seeds")) == f"{name}:17"


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().gates.min_gain = 1.0  # type: ignore[misc]


def test_two_files_are_an_error(tmp_path: Path) -> None:
    (tmp_path / ".github").mkdir()
    for name in FILES:
        (tmp_path / name).write_text("version: 1\n")
    with pytest.raises(InputError, match="two configurations"):
        load(tmp_path)


def test_a_link_out_of_the_repository_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "secret.yml").write_text("password: hunter2\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / FILES[0]).symlink_to("../secret.yml")
    with pytest.raises(InputError, match="leaves the repository") as caught:
        load(root)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILES[0]).write_bytes(b"version: \xff\n")
    with pytest.raises(InputError, match="UTF-8"):
        load(tmp_path)


@pytest.mark.parametrize(("text", "key", "line", "near"), [
    ("version: 1\ngatez: {}\n", "gatez", 2, "gates"),
    ("gates:\n  seeds: 3\n  min_gian: 1.1\n", "gates.min_gian", 3, "min_gain"),
    ("targets:\n  - path: a.py\n    input: f\n", "targets[0].input", 3, "inputs"),
    ("publish: {lables: []}\n", "publish.lables", 1, "labels"),
])
def test_an_unknown_key_is_named_with_line_and_nearest(text: str, key: str, line: int, near: str) -> None:
    error = mistake(text)
    assert error.what == f'unknown key "{key}"'
    assert error.where == f".kernelopt.yml:{line}"
    assert error.fix == f'did you mean "{near}"?'


def test_an_unknown_key_near_nothing_lists_the_valid_ones() -> None:
    assert mistake("budget: {zzzz: 1}").fix == "valid keys here: candidates, gpu_minutes, gpu_wait_s, search_s, wall_s"


@pytest.mark.parametrize(("text", "part"), [
    ("gates: {min_gain: 0.9}", "greater than or equal to 1"),
    ("gates: {seeds: '3'}", "must be a whole number"),
    ("gates: {k: .nan}", "less than or equal to 16"),
    ("gates: {m: two}", "must be a number"),
    ("publish: {draft: 'no'}", "must be true or false"),
    ("publish: {labels: perf}", "must be a list"),
    ("publish: {commit_message: '{0.__class__}'}", "only placeholder"),
    ("publish: {commit_message: '{targets:>999999999}'}", "only placeholder"),
    ("publish: {commit_message: 'a\n\n  b'}", "one line"),
    ("publish: {branch_prefix: a/b-}", "not a permitted value"),
    ("levers: [kernel, lunch]", "'kernel', 'dispatch', 'launch' or 'region'"),
    ("levers: [kernel, kernel]", "at most once"),
    ("levers: []", "at least 1"),
    ("device: gpu", "not a permitted value"),
    ("sandbox: none", "'auto', 'docker'"),
    ("version: 2", "must be 1"),
    ("artifact: {root: ../out}", "without .."),
    ("artifact: {root: my-kernels}", "importable"),
    ("targets: [{path: /etc/passwd.py}]", "without .."),
    ("targets: [{path: a/../../b.py}]", "without .."),
    ("targets: [{path: model.txt}]", "Python file"),
    ("targets: [{entry: A}]", "is missing"),
    ("targets: [{path: a.py, entry: class}]", "word of Python"),
    ("targets: [{path: a.py, entry: 'os.system'}]", "not a permitted value"),
    ("targets: [{path: a.py, inputs: 'f()'}]", "name of a function"),
    ("targets: [{path: a.py, inputs: '../x.py:f'}]", "without .."),
    ("targets: [{path: a.py, name: x}, {path: b.py, name: x}]", "more than one target"),
    ("gates: 3", "mapping of keys"),
    ("1: 2", "keys must be text"),
])
def test_a_wrong_value_says_what_would_be_right(text: str, part: str) -> None:
    error = mistake(text)
    assert part in error.what
    assert error.where == ".kernelopt.yml:1"


def test_several_mistakes_are_shown_at_once() -> None:
    error = mistake("gates:\n  seeds: 0\nlevres: []\n")
    assert error.what == "the configuration has 2 mistakes"
    assert ".kernelopt.yml:2: " in error.where
    assert ".kernelopt.yml:3: " in error.where


def test_each_of_several_mistakes_has_its_own_advice() -> None:
    error = mistake("gates:\n  seeds: 0\n  metric: speed\nlevres: []\ndevice: gpu\n")
    lines = [line.strip() for line in error.where.splitlines() if line.strip()]
    places = [n for n, line in enumerate(lines) if line.startswith(".kernelopt.yml:")]
    advice = {lines[n].split('"')[1]: lines[n + 1] for n in places}
    assert advice == {
        "gates.seeds": "correct the value. Input draws of the model gate.", "levres": 'did you mean "levers"?',
        "gates.metric": advice["gates.metric"], "device": advice["device"]}
    assert "'latency' or 'throughput'" in error.where and "cuda:N; cpu; pretend" in advice["device"]


def test_not_every_mistake_is_shown() -> None:
    error = mistake("".join(f"key_{n}: 1\n" for n in range(14)))
    assert error.what == "the configuration has 14 mistakes" and error.where.rstrip().endswith("and 4 more")


@pytest.mark.parametrize(("text", "part", "line"), [
    ("version: 1\ngates: [1, 2\n", "not valid YAML", 3),
    ("a:\n\t- b\n", "not valid YAML", 2),
    ("version: 1\nversion: 1\n", "given twice", 2),
    ("gates: &g {seeds: 1}\nbudget: *g\n", "anchors and aliases", 2),
    ("- 1\n", "not a mapping", 1),
])
def test_broken_yaml_is_shown_with_its_line(text: str, part: str, line: int) -> None:
    error = mistake(text)
    assert part in error.what
    assert error.where == f".kernelopt.yml:{line}"


@pytest.mark.parametrize("text", [
    "x: \0", "[" * 20_000, "version: 1\n" + "# " + "x" * 70_000, "!!python/object:os.system x"])
def test_hostile_text_is_bad_input_and_no_crash(text: str) -> None:
    mistake(text)


def test_a_section_with_all_keys_commented_out_is_default() -> None:
    assert parse("gates:\n  # seeds: 3\n", "f").config == Config()
    assert parse("# nothing\n", "f").config == Config()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from([*Config.model_fields, "path", "entry", "seeds", "x"]), inner, max_size=4),
                    max_leaves=12))
def test_any_document_is_a_config_or_bad_input(data: object) -> None:
    try:
        parse(yaml.safe_dump(data), "f")
    except InputError as error:
        assert error.what


def test_origin_of_a_default() -> None:
    assert Traced(Config()).origin(("gates", "seeds")) == "default"


def test_the_published_schema_is_current_and_accepts_what_the_model_accepts() -> None:
    committed = json.loads((DOCS / "config.schema.json").read_text())
    assert committed == json_schema(), "run: python -m kernelopt_bot config --schema > docs/config.schema.json"
    Draft202012Validator.check_schema(committed)
    validator = Draft202012Validator(committed)
    assert validator.is_valid(yaml.safe_load(FULL))
    assert not validator.is_valid({"gatez": {}})
    assert not validator.is_valid({"gates": {"min_gain": 0.5}})


def test_the_published_reference_is_current() -> None:
    committed = (DOCS / "configuration.md").read_text()
    assert committed == markdown(), "run: python -m kernelopt_bot config --reference > docs/configuration.md"
    for model in (Config, TargetConfig):
        for key in model.model_fields:
            assert f"| `{key}` |" in committed


def test_reading_a_configuration_needs_no_torch() -> None:
    code = "import sys, kernelopt_bot.config, kernelopt_bot.targets.discover; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=DOCS.parent)
