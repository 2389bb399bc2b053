"""What the Landlock jail opens for a GPU: sockets that reach nothing and the names of its own threads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kernelopt_bot import process
from kernelopt_bot.sandbox.jail import Box
from tests.sandbox.jails import open_jail

# What cuInit does, as far as a jail can get in the way.
NEEDS = """
import json, os, socket, subprocess, sys, threading

def works(action):
    try:
        action()
    except OSError as e:
        return e.errno
    return 0

def rename(thread):
    with open(f"/proc/self/task/{thread}/comm", "w") as file:
        file.write("named")
    with open(f"/proc/self/task/{thread}/comm") as file:
        assert file.read() == "named\\n"

def bind():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\\0kernelopt-test-{os.getpid()}")
        listener.listen()

end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
found = {
    "name": works(lambda: rename(thread.native_id)),
    "bind": works(bind),
    "family": works(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()),
    "parent": works(lambda: open(f"/proc/{os.getppid()}/comm", "r+").close()),
    "new": works(lambda: open("/proc/self/new", "w").close()),
    "settings": works(lambda: open("/proc/self/root/proc/sys/kernel/core_pattern", "r+").close()),
    "pair": works(lambda: [end.send(b"x") for end in socket.socketpair()]),
}
end.set()
print(json.dumps(found))
"""


def needs(name: str, scratch: Path, devices: tuple[Path, ...]) -> dict[str, int]:
    launch = open_jail(name).wrap(
        Box(sys.executable, ("-I", "-S", "-W", "ignore", "-c", NEEDS), {"HOME": str(scratch)}, scratch, (), devices)
    )
    done = process.run(launch.command, timeout=30, environment=launch.environment, pass_fds=launch.pass_fds)
    launch.finish()
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", ["landlock", "landlock-plain"])
def test_open_for_a_gpu_alone(name: str, tmp_path: Path) -> None:
    with_gpu, without = needs(name, tmp_path, (Path("/dev/null"),)), needs(name, tmp_path, ())
    assert with_gpu["name"] == with_gpu["bind"] == with_gpu["pair"] == without["pair"] == 0
    for refused in ("family", "parent", "new", "settings"):
        assert with_gpu[refused] and without[refused], refused
    assert without["name"] and without["bind"]


@pytest.mark.parametrize("name", ["bubblewrap", "bubblewrap-root"])
def test_bubblewrap_has_what_a_gpu_needs(name: str, tmp_path: Path) -> None:
    found = needs(name, tmp_path, (Path("/dev/null"),))
    assert found["name"] == found["bind"] == found["pair"] == 0
    assert found["settings"] and found["new"]
