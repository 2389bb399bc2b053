"""`kernelopt init` and what it writes, tried by `kernelopt check`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from kernelopt_bot.cli.init import WORKFLOWS, workflow_files
from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.sweep import targets_in
from kernelopt_bot.config import Config, load, load_traced
from kernelopt_bot.config_template import SHOWN, Listed, text
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.report.templates import SHARED

NET = """import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x, mask=None):
        return self.linear(x)


class Other(nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/net.py").write_text(NET)
    return tmp_path


def init(project: Path, *arguments: str) -> int:
    return main(["init", "--root", str(project), "--workflow", "none", *arguments])


def test_a_chosen_model_becomes_a_target_that_check_tries(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(project, "models/net.py:Encoder") == 0
    out = capsys.readouterr().out
    assert "models/net.py:5  Encoder  not listed in .kernelopt.yml" in out
    assert "20 GPU minutes a pull request, 3 runs a day" in out
    (target,) = load(project).targets
    assert (target.path, target.entry) == ("models/net.py", "Encoder")
    assert target.inputs == "kernelopt_inputs.py:models_net_encoder_inputs"
    assert "# # " not in (project / ".kernelopt.yml").read_text().split("# Policy")[0]
    assert main(["check", "--root", str(project), "--device", "cpu", "--json"]) == 2
    (checked,) = json.loads(capsys.readouterr().out)
    assert "write the constructor's arguments of Encoder here" in checked["error"]
    stub = project / "kernelopt_inputs.py"
    lines = [line for line in stub.read_text().split("\n") if "raise NotImplementedError" not in line]
    stub.write_text("\n".join(lines).replace("torch.randn(8, 128), torch.randn(8, 128)", "torch.randn(8, 16)")
                    .replace("return {}", "return {'width': 16}"))
    assert main(["check", "--root", str(project), "--device", "cpu", "--json"]) == 0
    (checked,) = json.loads(capsys.readouterr().out)
    assert (checked["inputs"], checked["outputs"]) == (["x: (8, 16) float32"], ["(8, 3) float32"])
    assert (checked["parameters"], checked["parameter_bytes"], checked["device"]) == (51, 204, "cpu")
    assert 0 < checked["eager_ms"] < 1000


def test_a_file_that_does_not_parse_costs_the_other_targets_nothing(project: Path,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (project / "models/broken.py").write_text("def (:\n")
    (project / "models/good.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
        "def get_inputs():\n    return [torch.ones(2)]\n")
    (project / ".kernelopt.yml").write_text(
        "version: 1\ntargets:\n  - { path: models/broken.py, entry: Net, inputs: get_inputs }\n"
        "  - { path: models/good.py, entry: Model, inputs: get_inputs }\n")
    assert main(["check", "--root", str(project), "--device", "cpu", "--json"]) == 2
    broken, good = json.loads(capsys.readouterr().out)
    assert "does not parse" in broken["error"] and (good["error"], good["inputs"]) == ("", ["x: (2,) float32"])
    assert [t.path for t in targets_in(project, load_traced(project))] == ["models/good.py"]
    assert "models/broken.py:Net is left out: models/broken.py does not parse" in capsys.readouterr().err


def test_check_without_targets_says_what_to_do(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--root", str(project)]) == 2
    assert "kernelopt init PATH:CLASS" in capsys.readouterr().err


def test_without_a_choice_every_model_is_a_comment(project: Path) -> None:
    assert init(project) == 0
    assert load(project) == Config()
    written = (project / ".kernelopt.yml").read_text()
    assert "#     entry: Encoder" in written and "#     entry: Other" in written
    assert not (project / "kernelopt_inputs.py").exists()


def test_first_a_list_then_a_choice(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The order of docs/first-hour.md: what the first call wrote is no obstacle to the second."""
    assert init(project) == 0 and init(project, "models/net.py:Encoder") == 0
    assert [t.entry for t in load(project).targets] == ["Encoder"]
    kept = (project / ".kernelopt.yml").read_text()
    capsys.readouterr()
    assert init(project, "models/net.py:Other") == 0
    out = capsys.readouterr().out
    assert (project / ".kernelopt.yml").read_text() == kept, "a choice is the author's"
    assert "add below `targets:` in the configuration, which was kept:" in out
    assert '  - path: "models/net.py"\n    entry: Other' in out
    assert "write into kernelopt_inputs.py, which was kept: models_net_other_inputs" in out


def test_nothing_is_overwritten_without_force(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".github").mkdir()
    kept = project / ".github/kernelopt.yml"
    kept.write_text("sandbox: docker\n")
    assert init(project, "models/net.py:Other") == 0
    assert kept.read_text() == "sandbox: docker\n" and "kept:  .github/kernelopt.yml" in capsys.readouterr().out
    assert not (project / ".kernelopt.yml").exists()
    assert init(project, "--force", "models/net.py:Other") == 0
    assert [t.entry for t in load(project).targets] == ["Other"]


def test_a_link_is_never_written_through(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "file"
    outside.write_text("mine")
    (project / "kernelopt_inputs.py").symlink_to(outside)
    assert init(project, "--force", "models/net.py:Other") == 2
    assert outside.read_text() == "mine"


def test_print_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(project.rglob("*"))
    assert init(project, "--print", "models/net.py:Other") == 0
    out = capsys.readouterr().out
    assert "# ---- .kernelopt.yml" in out and "# ---- kernelopt_inputs.py" in out
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize(("spec", "advice"), [
    ("models/net.py:Encodr", "models/net.py:Encoder"), ("models/net.py", "models/net.py:Other")])
def test_a_model_that_is_not_there(project: Path, spec: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(project, spec) == 2
    assert advice in capsys.readouterr().err


def test_uncommented_the_policy_says_what_holds_anyway() -> None:
    policy = text([Listed("a.py", "Net", "kernelopt_inputs.py:f")]).split("# Policy")[1].split("\n", 1)[1]
    lines = [line[2:] for line in policy.split("\n") if line]
    data = yaml.safe_load("\n".join(lines))
    assert Config.model_validate(data) == Config()
    assert list(data) == [name for name, _ in SHOWN]


COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(("ref", "said"), [(COMMIT, ""), ("v1", "note: v1 can be moved to other code")])
def test_the_workflows_use_the_release_that_is_given(project: Path, ref: str, said: str,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--root", str(project), "--action", f"acme/kernelopt-bot@{ref}"]) == 0
    out = capsys.readouterr().out
    assert said in out and ("note:" in out) == bool(said)
    used = {}
    for path in (project / ".github/workflows").glob("*.yml"):
        [job] = yaml.safe_load(path.read_text())["jobs"].values()
        used[path.stem] = [u for u in [job.get("uses"), *(s.get("uses") for s in job.get("steps", []))]
                           if u and u.startswith("acme/")]
    called = [f"acme/kernelopt-bot/.github/workflows/kernelopt.yml@{ref}"]
    assert used == {"kernelopt-first-run": [f"acme/kernelopt-bot@{ref}"], "kernelopt-pull-requests": called,
                    "kernelopt-comment": called, "kernelopt-nightly": called}


def test_without_a_release_it_is_said_that_one_is_missing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--root", str(project)]) == 0
    assert "put the release's there" in capsys.readouterr().out
    assert main(["init", "--root", str(project), "--action", "acme/x@v1; rm"]) == 2
    assert "--action" in capsys.readouterr().err


def test_a_wheel_has_every_workflow_and_every_template() -> None:
    """Its data files lie where `report.templates.SHARED` says."""
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["data-files"]
    packed = {path for patterns in data.values() for pattern in patterns for path in root.glob(pattern)}
    assert packed >= {*(root / "docs/workflows").glob("*.yml"), *(p for p in (root / "templates").rglob("*.j2"))}
    assert {Path(p).parts[:2] for p in data} == {SHARED[0].parts[-2:]}


def test_the_workflow_files_are_the_documented_ones(project: Path) -> None:
    """They are linted and tested where they live."""
    documented = Path(__file__).parents[2] / "docs" / "workflows"
    if not documented.is_dir():
        with pytest.raises(Unavailable, match="no workflow files"):
            workflow_files(("all",))
        return
    assert main(["init", "--root", str(project)]) == 0
    for name in WORKFLOWS:
        written = project / f".github/workflows/kernelopt-{name}.yml"
        assert written.read_text() == (documented / f"{name}.yml").read_text()
