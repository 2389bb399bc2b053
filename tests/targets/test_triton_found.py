"""Triton kernels that a change affects, in real repositories."""

from __future__ import annotations

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.diff import affected, config_at, everything
from kernelopt_bot.targets.git import open_repository
from kernelopt_bot.targets.target import Affected
from kernelopt_bot.targets.triton_kernels import HOW_TO_RUN, TritonTarget
from tests.targets.conftest import MODEL, Scratch

KERNEL = """\
import triton
import triton.language as tl
{imports}
{marker}
@triton.jit
def scale(x_ptr, BLOCK: tl.constexpr):
    pass


def make_inputs():
    pass
"""
OWN = KERNEL.format(imports="", marker="# kernelopt: inputs=make_inputs")
BY_TEST = KERNEL.format(imports="from helpers import grid", marker="# kernelopt: record=tests/test_ops.py::test_scale")
PLAIN = KERNEL.format(imports="", marker="# of the author")
BASE = {"own.py": OWN, "tested.py": BY_TEST, "helpers.py": "grid = 1\n", "net.py": MODEL, "plain.py": PLAIN,
        "tests/test_ops.py": "import shapes\n", "tests/shapes.py": "", "tests/conftest.py": "", "other.py": ""}


def change(scratch: Scratch, files: dict[str, str | None], base: dict[str, str] | None = None) -> Affected:
    start = scratch.commit({**(BASE if base is None else base)})
    head = scratch.commit(files)
    repository = open_repository(scratch.root)
    return affected(repository, start, head, config_at(repository, head))


def names(found: Affected) -> list[str]:
    return [t.name for t in found.targets]


def test_a_kernels_own_file(scratch: Scratch) -> None:
    found = change(scratch, {"own.py": OWN + "# changed\n"})
    [target] = found.targets
    assert target == TritonTarget("own_scale", "own.py", "scale", "make_inputs", closure=("own.py",), line=6)
    assert dict(found.skipped)["tested_scale"] == "nothing that it imports changed"


@pytest.mark.parametrize("path", ["tested.py", "helpers.py", "tests/test_ops.py", "tests/shapes.py",
                                  "tests/conftest.py"])
def test_what_a_kernel_or_its_test_imports(scratch: Scratch, path: str) -> None:
    text = BASE[path] + "# changed\n"
    assert names(change(scratch, {path: text})) == ["tested_scale"]


def test_a_function_of_another_file_launches_it(scratch: Scratch) -> None:
    elsewhere = OWN.replace("inputs=make_inputs", "inputs=launch.py:all_of_it")
    base = {"own.py": elsewhere, "launch.py": "def all_of_it(): pass\n"}
    assert names(change(scratch, {"launch.py": "def all_of_it(): return 1\n"}, base)) == ["own_scale"]


def test_other_files_and_kernels_without_a_marker(scratch: Scratch) -> None:
    found = change(scratch, {"other.py": "x = 1\n", "plain.py": PLAIN + "# changed\n", "net.py": MODEL + "# changed\n"})
    assert names(found) == ["net"]
    assert dict(found.skipped)["plain.py"] == f"nothing says what launches scale: {HOW_TO_RUN}"


def test_a_listed_kernel_needs_no_marker(scratch: Scratch) -> None:
    config = "kernels:\n  - {name: mine, path: plain.py, kernel: scale, inputs: make_inputs}\n"
    found = change(scratch, {".kernelopt.yml": config})
    assert names(found) == ["mine"] and found.targets[0].origin == "config", "the list itself is the change"
    found = change(scratch, {"plain.py": PLAIN + "# changed\n"}, {**BASE, ".kernelopt.yml": config})
    assert names(found) == ["mine"]
    found = change(scratch, {"plain.py": f"# kernelopt: off\n{PLAIN}"})
    assert names(found) == [] and dict(found.skipped)["plain.py"].startswith("it opts out")


@pytest.mark.parametrize(("kernel", "what"), [
    ("path: plain.py, kernel: scales, inputs: make_inputs", "no Triton kernel scales"),
    ("path: plain.py, kernel: scale, inputs: make", "no function make"),
    ("path: gone.py, kernel: scale, inputs: make", "no file gone.py")])
def test_a_listed_kernel_that_is_not_there(scratch: Scratch, kernel: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        change(scratch, {".kernelopt.yml": f"kernels: [{{{kernel}}}]\n"})
    assert caught.value.where == ".kernelopt.yml:1"


def test_a_kernel_that_is_listed_twice(scratch: Scratch) -> None:
    one = "{path: plain.py, kernel: scale, inputs: make_inputs}"
    with pytest.raises(InputError, match="listed twice"):
        change(scratch, {".kernelopt.yml": f"kernels:\n - {one}\n - {one}\n"})


@pytest.mark.parametrize("marker", [
    "inputs=gone", "record=tests/gone.py::test", "record=../up.py::test", "record=/etc/passwd.py::x", "inputs=a-b"])
def test_a_marker_that_names_nothing_costs_the_others_nothing(scratch: Scratch, marker: str) -> None:
    bad = OWN.replace("inputs=make_inputs", marker)
    found = change(scratch, {"own.py": bad, "net.py": MODEL + "# changed\n"})
    assert names(found) == ["net"] and dict(found.skipped)["own.py:scale"]


def test_a_file_that_does_not_parse(scratch: Scratch) -> None:
    config = "kernels: [{path: own.py, kernel: scale, inputs: make_inputs}]\n"
    found = change(scratch, {"own.py": OWN + "def broken(\n", "net.py": MODEL + "# x\n", ".kernelopt.yml": config})
    assert names(found) == ["net"] and dict(found.skipped)["own.py"].startswith("does not parse")


def test_all_of_a_commit_and_none_of_our_own(scratch: Scratch) -> None:
    head = scratch.commit({**BASE, "kernelopt_kernels/x/kernels/k.py": OWN})
    repository = open_repository(scratch.root)
    assert names(everything(repository, head, config_at(repository, head))) == ["net", "own_scale", "tested_scale"]
