"""What a change affects, in real repositories."""

from __future__ import annotations

import os
import time

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.diff import affected, config_at, config_for
from kernelopt_bot.targets.git import open_repository
from kernelopt_bot.targets.target import Affected
from tests.targets.conftest import MODEL, Scratch

USES_LAYERS = "from layers.norm import Norm\n" + MODEL
NORM = "import torch.nn as nn\nclass Norm(nn.Module): pass\n"
BASE = {"a.py": MODEL, "b.py": USES_LAYERS, "layers/norm.py": NORM, "layers/unused.py": "", "README.md": ""}


def change(scratch: Scratch, files: dict[str, str | None], base: dict[str, str] | None = None) -> Affected:
    start = scratch.commit({**(BASE if base is None else base)})
    head = scratch.commit(files)
    repository = open_repository(scratch.root)
    found = affected(repository, start, head, config_at(repository, head))
    assert (found.base, found.head) == (start, head)
    return found


def names(found: Affected) -> list[str]:
    return [t.name for t in found.targets]


def test_a_changed_model(scratch: Scratch) -> None:
    found = change(scratch, {"a.py": MODEL + "# changed\n"})
    assert names(found) == ["a"]
    assert found.changed == ("a.py",)
    assert found.skipped == (("b", "nothing that it imports changed"),)


def test_a_change_in_what_a_model_imports(scratch: Scratch) -> None:
    found = change(scratch, {"layers/norm.py": NORM + "# changed\n"})
    assert names(found) == ["b"]
    assert found.targets[0].closure == ("b.py", "layers/norm.py")


def test_a_changed_model_that_opts_out(scratch: Scratch) -> None:
    found = change(scratch, {"a.py": f"# kernelopt: off\n{MODEL}", "layers/norm.py": NORM + "# changed\n"})
    assert names(found) == ["b"]
    assert ("a.py", "it opts out with `# kernelopt: off`") in found.skipped


@pytest.mark.parametrize("files", [{"README.md": "more"}, {"layers/unused.py": "x = 1\n"}, {}])
def test_a_change_that_no_model_imports(scratch: Scratch, files: dict[str, str | None]) -> None:
    assert names(change(scratch, files)) == []


def test_a_deleted_import(scratch: Scratch) -> None:
    assert names(change(scratch, {"layers/norm.py": None})) == ["b"]


def test_a_module_that_becomes_a_package(scratch: Scratch) -> None:
    found = change(scratch, {"layers/norm.py": None, "layers/norm/__init__.py": NORM})
    assert names(found) == ["b"]
    assert found.targets[0].closure == ("b.py", "layers/norm/__init__.py")


def test_a_new_file_that_shadows_an_import(scratch: Scratch) -> None:
    found = change(scratch, {"layers/__init__.py": ""})
    assert names(found) == ["b"]


def test_a_deleted_target(scratch: Scratch) -> None:
    assert names(change(scratch, {"a.py": None})) == []


def test_the_diff_starts_at_the_merge_base(scratch: Scratch) -> None:
    scratch.commit(dict(BASE))
    scratch.git("checkout", "-q", "-b", "feature")
    scratch.commit({"a.py": MODEL + "# changed\n"})
    scratch.git("checkout", "-q", "main")
    scratch.commit({"layers/norm.py": NORM + "# changed on main\n"})
    repository = open_repository(scratch.root)
    found = affected(repository, "main", "feature", config_at(repository, "feature"))
    assert names(found) == ["a"]


def test_models_without_inputs_are_told_how_to_get_them(scratch: Scratch) -> None:
    found = change(scratch, {"layers/unused.py": NORM + "class Other(Norm): pass\n"})
    reason = dict(found.skipped)["layers/unused.py"]
    assert reason.startswith("no example inputs for Norm, Other: add `def get_inputs()")
    assert ".kernelopt.yml" in reason


def test_a_building_block_of_a_target_needs_no_inputs(scratch: Scratch) -> None:
    assert "layers/norm.py" not in dict(change(scratch, {"layers/norm.py": NORM + "#\n"}).skipped)


def test_files_that_do_not_parse_are_passed_over(scratch: Scratch) -> None:
    found = change(scratch, {"layers/unused.py": "def (\n", "a.py": MODEL + "#\n"})
    assert names(found) == ["a"]
    assert dict(found.skipped)["layers/unused.py"].startswith("does not parse: line 1: ")


def test_a_target_whose_import_does_not_parse_is_tried_and_told(scratch: Scratch) -> None:
    found = change(scratch, {"layers/norm.py": "def (\n"})
    assert names(found) == ["b"]
    assert "what it imports is unknown" in dict(found.skipped)["layers/norm.py"]


def test_our_own_artifacts_are_no_targets(scratch: Scratch) -> None:
    found = change(scratch, {"kernelopt_kernels/a/extra.py": MODEL, "a.py": MODEL + "#\n"})
    assert names(found) == ["a"]
    assert "kernelopt_kernels/a/extra.py" not in dict(found.skipped)


def test_configured_targets(scratch: Scratch) -> None:
    config = "targets:\n  - {path: net.py, entry: Net, inputs: 'tools/data.py:batch'}\n"
    net = "import torch.nn as nn\nclass Net(nn.Module): pass\n"
    base = {**BASE, "net.py": net, "tools/data.py": "def batch(): pass\n", ".kernelopt.yml": config}
    found = change(scratch, {"tools/data.py": "def batch(): return []\n"}, base)
    assert names(found) == ["net_Net"]
    assert found.targets[0].origin == "config"


def test_a_target_that_the_change_configures_is_affected(scratch: Scratch) -> None:
    found = change(scratch, {".kernelopt.yml": "targets:\n  - {path: a.py, name: first}\n"})
    assert names(found) == ["first"]


def test_a_configuration_that_was_broken_before_counts_as_none(scratch: Scratch) -> None:
    broken = {**BASE, ".kernelopt.yml": "nonsense: ["}
    found = change(scratch, {".kernelopt.yml": "targets:\n  - {path: a.py}\n"}, broken)
    assert names(found) == ["a"]


def test_other_settings_affect_no_target(scratch: Scratch) -> None:
    config = "targets:\n  - {path: a.py}\n"
    found = change(scratch, {".kernelopt.yml": config + "device: cpu\n"}, {**BASE, ".kernelopt.yml": config})
    assert names(found) == []


def test_a_configured_target_that_is_not_there(scratch: Scratch) -> None:
    with pytest.raises(InputError) as caught:
        change(scratch, {".kernelopt.yml": "version: 1\ntargets:\n  - path: b2.py\n"})
    assert caught.value.what == "there is no file b2.py"
    assert caught.value.where == ".kernelopt.yml:3"
    assert caught.value.exit_code == 2


def test_a_configured_target_that_does_not_parse_stops_no_other(scratch: Scratch) -> None:
    found = change(scratch, {".kernelopt.yml": "targets: [{path: a.py}, {path: b.py}]\n", "b.py": "def (\n"})
    assert names(found) == ["a"]
    assert dict(found.skipped)["b.py"].startswith("does not parse: line 1: ")


def test_a_target_listed_twice(scratch: Scratch) -> None:
    with pytest.raises(InputError, match="listed twice") as caught:
        change(scratch, {".kernelopt.yml": "targets:\n  - path: a.py\n  - path: a.py\n"})
    assert caught.value.where == ".kernelopt.yml:3"


def test_a_shallow_clone_without_the_base(scratch: Scratch, tmp_path: object) -> None:
    base = scratch.commit(dict(BASE))
    head = scratch.commit({"a.py": MODEL + "#\n"})
    scratch.git("clone", "-q", "--depth", "1", f"file://{scratch.root}", f"{tmp_path}/shallow")
    repository = open_repository(scratch.root.parent / "shallow")
    with pytest.raises(InputError, match="shallow clone") as caught:
        affected(repository, base, head, config_at(repository, head))
    assert "fetch-depth: 0" in caught.value.fix


def test_policy_comes_from_the_base_and_targets_from_the_head(scratch: Scratch) -> None:
    base = scratch.commit({**BASE, ".kernelopt.yml": "sandbox: bubblewrap\n"})
    head = scratch.commit({".kernelopt.yml": "sandbox: process\ntargets:\n  - path: a.py\n"})
    repository = open_repository(scratch.root)
    traced = config_for(repository, base, head)
    assert traced.config.sandbox == "bubblewrap"
    assert [t.path for t in traced.config.targets] == ["a.py"]
    assert traced.origin(("targets", 0)) == ".kernelopt.yml:3"


def test_two_configurations_in_a_commit(scratch: Scratch) -> None:
    commit = scratch.commit({".kernelopt.yml": "", ".github/kernelopt.yml": ""})
    with pytest.raises(InputError, match="two configurations"):
        config_at(open_repository(scratch.root), commit)


def test_a_configuration_that_is_a_link_is_not_followed(scratch: Scratch) -> None:
    (scratch.root / ".kernelopt.yml").symlink_to("/etc/passwd")
    commit = scratch.commit({})
    assert config_at(open_repository(scratch.root), commit).file == ""


def test_many_unaffected_targets_are_counted(scratch: Scratch) -> None:
    found = change(scratch, {"a.py": MODEL + "#\n"}, {**BASE, **{f"m{i}.py": MODEL for i in range(20)}})
    assert ("21 other targets", "nothing that they import changed") in found.skipped


def test_names_that_are_no_text_do_no_harm(scratch: Scratch) -> None:
    start = scratch.commit(dict(BASE))
    (scratch.root / os.fsdecode(b"caf\xe9.py")).write_text(MODEL)
    head = scratch.commit({"a\nb.py": MODEL})
    repository = open_repository(scratch.root)
    found = affected(repository, start, head, config_at(repository, head))
    assert found.targets == ()
    assert found.changed == ("a\nb.py", "caf\\xe9.py")
    assert {p: r for p, r in found.skipped if p in found.changed} == dict.fromkeys(
        found.changed, "its name is not printable UTF-8")


def test_a_large_repository_is_fast(scratch: Scratch) -> None:
    body = NORM * 5 + "".join(f"def f{i}(x):\n    return x * {i}\n" for i in range(50))
    files = {f"pkg{i % 30}/m{i}.py": f"import pkg{(i + 1) % 30}.m{(i * 7) % 1500}\n{body}" for i in range(1500)}
    files |= {f"targets/t{i}.py": f"import pkg{i}.m{i}\n{MODEL}" for i in range(20)}
    start = scratch.commit(files)
    head = scratch.commit({"targets/t3.py": MODEL, "targets/t4.py": MODEL})
    repository = open_repository(scratch.root)
    began = time.process_time()
    found = affected(repository, start, head, config_at(repository, head))
    # Issue E grants the whole bot 15 s for 20 targets of which 2 changed.
    assert time.process_time() - began < 10
    assert names(found) == ["targets_t3", "targets_t4"]
