from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.publish import files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels" / "block"
    (folder / "kernels").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    (folder / "__init__.py").write_text("a")
    (folder / "kernels" / "norm.py").write_text("b")
    (tmp_path / "secret").write_text("c")
    return tmp_path


def test_reads_the_folder_by_path_from_the_root(root: Path) -> None:
    assert files.read_folder(root, "kernels/block") == {
        "kernels/block/__init__.py": b"a",
        "kernels/block/kernels/norm.py": b"b",
    }


@pytest.mark.parametrize("folder", ["..", "kernels/../..", "/etc", "", ".", "absent", "secret", ".github"])
def test_other_folders_are_refused(root: Path, folder: str) -> None:
    with pytest.raises(InputError):
        files.read_folder(root, folder)


def test_links_and_special_files_are_refused(root: Path) -> None:
    (root / "link").symlink_to(root / "kernels")
    with pytest.raises(InputError, match="no plain folder"):
        files.read_folder(root, "link/block")
    leak = root / "kernels" / "block" / "leak"
    for make in (
        lambda: leak.symlink_to(root / "secret"),
        lambda: leak.symlink_to(root, target_is_directory=True),
        lambda: os.mkfifo(leak),
    ):
        make()
        with pytest.raises(InputError, match="no plain file"):
            files.read_folder(root, "kernels/block")
        leak.unlink()


def test_too_much_is_refused(root: Path) -> None:
    big = root / "kernels" / "block" / "big"
    big.write_bytes(b"x" * (files.MAX_FILE_BYTES + 1))
    with pytest.raises(InputError, match="larger than"):
        files.read_folder(root, "kernels/block")
    with pytest.raises(InputError, match="more to publish"):
        files.check_files({f"f{i}": b"" for i in range(files.MAX_FILES + 1)})
    with pytest.raises(InputError, match="more to publish"):
        files.check_files({f"f{i}": b"x" * files.MAX_FILE_BYTES for i in range(9)})


def test_a_path_cannot_be_file_and_folder() -> None:
    with pytest.raises(InputError, match="both"):
        files.check_files({"a": b"", "a/b": b""})


@pytest.mark.parametrize(
    "path", ["a/.git/x", "a/.GIT/x", ".git./x", ".gIt /x", "git~1/x", ".github/CODEOWNERS", "a\nb", "a\x00", "./a"]
)
def test_paths_that_git_or_other_systems_read_otherwise(path: str) -> None:
    with pytest.raises(InputError):
        files.check_path(path)


@pytest.mark.parametrize("path", [".gitattributes", "a/.gitignore", "a b/é.py", "github/x"])
def test_plain_paths_pass(path: str) -> None:
    files.check_path(path)


@pytest.mark.parametrize("path", ["src/model.py", "kernels", "kernels_old/x.py", "kernels/../x.py", ".github/x.yml",
                                  "kernels/.git/x", "/kernels/x.py"])
def test_nothing_outside_the_artifacts_is_removed(path: str) -> None:
    files.check_removed(["kernels/block/manifest.json"], "kernels")
    with pytest.raises(InputError):
        files.check_removed(["kernels/block/manifest.json", path], "kernels")


@pytest.mark.parametrize(("path", "size"), [
    ("other.py", 1), (".github/x.py", 1), ("kernels/x.py", 1), ("../x.py", 1), ("app.txt", 1),
    ("app.py", (1 << 20) + 1)])
def test_call_sites_are_those_that_were_named(path: str, size: int) -> None:
    permitted = {"app.py", ".github/x.py", "kernels/x.py", "../x.py", "app.txt"}
    files.check_call_sites({"app.py": b"x"}, permitted, "kernels")
    with pytest.raises(InputError):
        files.check_call_sites({path: b"x" * size}, permitted, "kernels")
