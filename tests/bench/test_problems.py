from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelopt_bot.bench.problems import find, levels, selection, version
from kernelopt_bot.errors import InputError


@pytest.mark.parametrize(("text", "inside", "outside"), [
    ("odd", [1, 99], [2, 100]), ("even", [2, 100], [1]), ("all", [1, 2], []),
    ("1,3, 5-9", [1, 3, 5, 7, 9], [2, 4, 10])])
def test_selections(text: str, inside: list[int], outside: list[int]) -> None:
    chosen = selection(text)
    assert all(n in chosen for n in inside) and not any(n in chosen for n in outside)


@pytest.mark.parametrize("text", ["", "1,", "9-5", "-3", "odd,1", "1;2"])
def test_what_is_no_selection(text: str) -> None:
    with pytest.raises(InputError) as caught:
        selection(text)
    assert "1,3,5-9" in caught.value.fix


def test_levels() -> None:
    assert levels("3, 1,1") == (1, 3)
    for wrong in ("", "0", "5", "one", "1-3"):
        with pytest.raises(InputError):
            levels(wrong)


def test_a_clone_and_a_folder_of_levels_are_found_alike(clone: Path) -> None:
    found = find(clone, (1,), selection("odd"))
    assert [(p.level, p.number, p.id) for p in found] == [(1, 1, "level1-001"), (1, 3, "level1-003"),
                                                          (1, 5, "level1-005")]
    assert find(clone / "KernelBench", (1,), selection("odd")) == found


def test_names_decide_and_no_file_is_read(clone: Path) -> None:
    for path in (clone / "KernelBench" / "level1").iterdir():
        path.chmod(0)
    assert [p.number for p in find(clone, (1,), selection("all"))] == [1, 2, 3, 5]


def test_a_missing_level_a_double_number_and_nothing_selected(clone: Path) -> None:
    with pytest.raises(InputError, match="no level2"):
        find(clone, (1, 2), selection("odd"))
    with pytest.raises(InputError, match="no problem is selected"):
        find(clone, (1,), selection("7"))
    (clone / "KernelBench" / "level1" / "3_Again.py").touch()
    with pytest.raises(InputError, match="the number 3"):
        find(clone, (1,), selection("odd"))


def test_the_version_of_a_clone_or_of_a_copy(clone: Path) -> None:
    assert version(clone) == ""
    (clone / "COMMIT").write_text("abc123\n")
    assert version(clone) == "abc123"
    git = ["git", "-C", str(clone), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "problems"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert version(clone) == head
    # Below another repository: that one's commit says nothing of the problems.
    assert version(clone / "KernelBench") == ""
