"""Policy and targets from different places, and several roots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kernelopt_bot.config import FILES, Config, Traced, load_traced
from kernelopt_bot.config_sources import joined, mapping_reader, target_files
from kernelopt_bot.errors import InputError

POLICY = "roots: [services/a, services/b]\nsandbox: docker\nbudget:\n  gpu_minutes: 5\n"


def of(policy: Mapping[str, str], head: Mapping[str, str]) -> Traced:
    readers = [mapping_reader({name: text.encode() for name, text in files.items()}) for files in (policy, head)]
    return joined(readers[0], readers[1])


def test_a_head_changes_nothing_of_the_policy() -> None:
    policy = {FILES[0]: POLICY}
    hostile = {FILES[0]: "roots: [elsewhere]\nsandbox: process\nbudget: {gpu_minutes: 1440}\n"
                         "runner: {ephemeral: true}\ncommands: {permission: nobody}\nevents: {runs_a_day: 1000}\n"
                         "unknown: 1\nenvironment: {python: ./evil}\ntargets:\n  - path: a.py\n",
               "elsewhere/.kernelopt.yml": "targets: [{path: b.py}]\n"}
    traced = of(policy, hostile)
    kept = traced.config.model_copy(update={"targets": ()})
    assert kept == Config.model_validate(
        {"roots": ["services/a", "services/b"], "sandbox": "docker", "budget": {"gpu_minutes": 5.0}})
    assert [t.path for t in traced.config.targets] == ["a.py"]
    assert traced.origin(("sandbox",)) == ".kernelopt.yml:2"
    assert traced.origin(("targets", 0)) == ".kernelopt.yml:10"


def test_a_policy_that_moved_between_the_two_places() -> None:
    traced = joined(mapping_reader({FILES[1]: b"sandbox: docker\ntargets: [{path: old.py}]\n"}),
                    mapping_reader({FILES[0]: b"targets:\n - path: new.py\n"}))
    assert [t.path for t in traced.config.targets] == ["new.py"]
    assert (traced.origin(("sandbox",)), traced.origin(("targets", 0))) == (f"{FILES[1]}:1", f"{FILES[0]}:2")


def test_without_any_policy_the_defaults_hold() -> None:
    traced = joined(mapping_reader({}), mapping_reader({FILES[0]: b"sandbox: process\ntargets: [{path: a.py}]\n"}))
    assert traced.config.sandbox == "auto"
    assert len(traced.config.targets) == 1
    assert (traced.config.budget.gpu_minutes, traced.config.events.runs_a_day) == (20.0, 3)


def test_each_root_lists_its_own_targets(tmp_path: Path) -> None:
    (tmp_path / FILES[0]).write_text("targets: [{path: top.py}]\n" + POLICY)
    for root, text in (("a", "targets:\n - {path: net.py, inputs: 'data.py:batch', wire: 'app.py:main'}\n"),
                       ("b", "version: 1\ntargets: []\n")):
        (tmp_path / "services" / root).mkdir(parents=True)
        (tmp_path / "services" / root / FILES[0]).write_text(text)
    traced = load_traced(tmp_path)
    top, inner = traced.config.targets
    assert (top.path, top.inputs) == ("top.py", "get_inputs")
    assert inner.path == "services/a/net.py"
    assert (inner.inputs, inner.init, inner.wire) == ("services/a/data.py:batch", "", "services/a/app.py:main")
    assert traced.origin(("targets", 0)) == f"{FILES[0]}:1"
    assert traced.origin(("targets", 1)) == f"services/a/{FILES[0]}:2"
    assert set(target_files(traced.config)) == {*FILES, f"services/a/{FILES[0]}", f"services/b/{FILES[0]}"}


@pytest.mark.parametrize(("text", "what"), [
    ("sandbox: process\ntargets: []\n", 'unknown key "sandbox"'),
    ("targets: [{path: ../up.py}]\n", "without .."),
    ("- a\n", "not a mapping"),
])
def test_mistakes_in_a_roots_file_are_shown_there(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        of({FILES[0]: POLICY}, {"services/a/.kernelopt.yml": text})
    assert caught.value.where == "services/a/.kernelopt.yml:1"
    assert what in caught.value.what


def test_a_name_belongs_to_one_target_of_all_roots() -> None:
    with pytest.raises(InputError, match="more than one target") as caught:
        of({FILES[0]: POLICY}, {f"services/{r}/.kernelopt.yml": "targets: [{path: n.py, name: net}]\n" for r in "ab"})
    assert caught.value.where == "services/b/.kernelopt.yml:1"
    assert "services/a/.kernelopt.yml:1" in caught.value.fix


def test_a_head_whose_file_is_no_yaml_is_an_error_of_its_own() -> None:
    with pytest.raises(InputError, match="not valid YAML"):
        of({FILES[0]: POLICY}, {FILES[0]: "targets: [\n"})


def test_a_link_of_a_root_that_leaves_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "services/a").mkdir(parents=True)
    (tmp_path / "secret.yml").write_text("password: hunter2\n")
    (root / FILES[0]).write_text(POLICY)
    (root / "services/a" / FILES[0]).symlink_to(tmp_path / "secret.yml")
    with pytest.raises(InputError, match="leaves the repository") as caught:
        load_traced(root)
    assert "hunter2" not in str(caught.value)


def test_kernels_come_from_the_head_and_from_each_root() -> None:
    policy = {FILES[0]: POLICY + "kernels: [{path: old.py, kernel: k, inputs: f}]\n"}
    head = {FILES[0]: "kernels:\n - {path: a.py, kernel: k, inputs: f}\n",
            "services/a/.kernelopt.yml": "kernels:\n - {path: b.py, kernel: k, inputs: 'c.py:f'}\n"
                                         " - {path: b.py, kernel: l, record: 'tests/test_b.py::test_l[a//b]'}\n"}
    traced = of(policy, head)
    top, inner, tested = traced.config.kernels
    assert (top.path, top.inputs) == ("a.py", "f")
    assert (inner.path, inner.inputs) == ("services/a/b.py", "services/a/c.py:f")
    assert tested.record == "services/a/tests/test_b.py::test_l[a//b]"
    assert traced.origin(("kernels", 0)) == f"{FILES[0]}:2"
    assert traced.origin(("kernels", 2)) == "services/a/.kernelopt.yml:3"
    assert of(policy, {}).config.kernels == ()


def test_a_kernels_name_belongs_to_one_of_all_roots() -> None:
    one = "kernels: [{name: k, path: b.py, kernel: k, inputs: f}]\n"
    with pytest.raises(InputError, match="the name k is given to more than one"):
        of({FILES[0]: POLICY}, {FILES[0]: one, "services/b/.kernelopt.yml": one})
