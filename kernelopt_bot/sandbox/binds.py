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

NEVER = ("/etc", "/run", "/var/run", "/proc", "/sys", "/dev", "/boot")
"""No interpreter's prefix: what these hold is the machine's, its sockets and its secrets."""

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
        if (base := _home(prefix / "pyvenv.cfg")) is not None:
            waiting += [hop for name in _names(binary.name) if _is_program(base / name) for hop in hops(base / name)]
    return _narrow(prefixes)


def _home(config: Path) -> Path | None:
    """What a virtual environment was made from: the first `home` of its pyvenv.cfg, as Python reads it."""
    try:
        lines = config.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip().lower() == "home" and os.path.isabs(value.strip()):
            return Path(os.path.normpath("/" + value.strip().lstrip("/")))
    return None


def _names(name: str) -> list[str]:
    """The interpreter's name in the environment it was made from may be the longer or the shorter one."""
    return list(dict.fromkeys([name, "python3", "python"]))


def _is_program(path: Path) -> bool:
    """A compiled program: that a file says so of a folder does not make the folder readable."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def _narrow(prefixes: list[Path]) -> list[Path]:
    wide = {Path(os.path.expanduser("~")), *map(Path, ("/", "/root", "/home", "/opt", "/tmp", "/var", "/srv", "/mnt"))}
    covered = [Path(p) for p in (*SYSTEM, *NEVER)]
    result: list[Path] = []
    # `//x` is `/x`, and must not look like another place.
    for prefix in dict.fromkeys(Path(os.path.normpath("/" + str(p).lstrip("/"))) for p in prefixes):
        if any(prefix.is_relative_to(p) for p in covered):
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
