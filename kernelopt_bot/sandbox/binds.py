"""What a jailed interpreter must be able to read: the system's programs, its own prefixes, and what it was given."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kernelopt_bot import process
from kernelopt_bot.errors import InputError

SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/libx32", "/bin", "/sbin", "/nix/store")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
SYSFS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
SYSFS_GPU = ("/sys",)
"""libcuda looks for the device, its NUMA node and its modules there."""

PREFIX_PARTS = ("bin", "lib", "lib64", "include", "libexec", "pyvenv.cfg")
"""What is taken of a prefix that is a home folder or a root, and holds much else."""

HIDDEN = (".git", ".env", ".netrc", ".ssh", ".aws", ".azure", ".kube", ".docker", ".config", ".gnupg", ".npmrc",
          ".pypirc", ".git-credentials", ".gitconfig")  # fmt: skip
"""At the top of a readable folder, these stay hidden: they hold credentials (a checkout's `.git/config` does)."""


def existing(paths: tuple[str, ...]) -> list[Path]:
    return [Path(p) for p in paths if os.path.exists(p)]


def hops(path: Path) -> list[Path]:
    """The path and every target on its chain of symbolic links, absolute."""
    found = [Path(os.path.abspath(path))]
    while found[-1].is_symlink() and len(found) < 40:
        found.append(Path(os.path.abspath(found[-1].parent / os.readlink(found[-1]))))
    return found


def is_script(path: str) -> bool:
    """Whether the file, or what a link stands for, is started by another program. Raises OSError if it is not there."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def resolve_python(python: str) -> str:
    """The absolute path of an interpreter, a version manager's shim replaced by what it stands for.

    Raises InputError if there is none, or if it does not start.
    """
    found = shutil.which(python)
    if found is None:
        raise InputError(f"there is no interpreter {python!r}", where="environment.python in .kernelopt.yml",
                         fix="give the absolute path of a Python 3.11 or 3.12 that has torch")
    if not is_script(found):
        return os.path.abspath(found)
    try:
        done = process.run([found, "-I", "-S", "-c", "import sys; print(sys.executable)"], timeout=20,
                           environment=process.environment((*process.BASE_ENVIRONMENT, "PYENV_ROOT", "PYENV_VERSION")))
    except process.ProcessError as e:
        raise InputError(f"the interpreter {python!r} does not start", where=e.why,
                         fix="give the absolute path of the interpreter itself, not of a shim") from e
    return os.path.abspath(done.stdout.strip())


def python_prefixes(python: str) -> list[Path]:
    """The folders that the interpreter needs: of the virtual environment, of what it was made from, of each link."""
    prefixes: list[Path] = []
    waiting = hops(Path(python))
    seen: set[Path] = set()
    while waiting:
        binary = waiting.pop()
        if binary in seen:
            continue
        seen.add(binary)
        prefix = binary.parent.parent
        prefixes.append(prefix)
        # A folder on the way may itself be a link (`/opt/python` -> `/opt/python-3.11.7`).
        prefixes.append(Path(os.path.realpath(prefix)))
        config = prefix / "pyvenv.cfg"
        if config.is_file():
            for line in config.read_text().splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "home":
                    waiting.extend(hops(Path(value.strip()) / binary.name))
    return _narrow(prefixes)


def _narrow(prefixes: list[Path]) -> list[Path]:
    wide = {Path("/"), Path(os.path.expanduser("~")), Path("/root"), Path("/home"), Path("/opt"), Path("/tmp")}
    result: list[Path] = []
    for prefix in dict.fromkeys(prefixes):
        if any(prefix == Path(p) or Path(p) in prefix.parents for p in SYSTEM):
            continue
        parts = [prefix / part for part in PREFIX_PARTS] if prefix in wide else [prefix]
        result.extend(p for p in parts if p.exists() and p not in result)
    return result


def hidden(folder: Path) -> list[Path]:
    """What must not be seen at the top of a readable folder."""
    return [folder / name for name in HIDDEN if os.path.lexists(folder / name)]


def readable(python: str, folders: tuple[Path, ...], *, gpu: bool) -> list[Path]:
    """Everything to be readable, each path once, parents before what lies in them."""
    system = existing(SYSTEM_FILES) + existing(SYSFS_GPU if gpu else SYSFS)
    wanted = [*system, *python_prefixes(python), *(f for f in folders if f.exists())]
    return sorted(dict.fromkeys(wanted), key=lambda path: (len(path.parts), path))
