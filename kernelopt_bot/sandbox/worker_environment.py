"""The whole environment of a worker: made from nothing, the same in every jail."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib")
"""Where container runtimes mount the driver's libraries, outside the loader's default path."""

PROGRAM_FOLDERS = ("/usr/local/cuda/bin", "/usr/local/nvidia/bin", "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin",
                   "/sbin")

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "TORCH_EXTENSIONS_DIR": "extensions",
          "CUDA_CACHE_PATH": "cuda", "XDG_CACHE_HOME": "xdg"}
"""Variable -> folder under `<scratch>/cache`: compiler caches belong to one run and are never shared."""

VECTOR_SETS = "TORCHINDUCTOR_VEC_ISA_OK"
"""torch's own: `1` takes the processor's vector instruction sets as usable, `0` as not; without it each new cache
folder costs trial compilations of some 10 s."""

COMPILED_HEADERS = "KERNELOPT_COMPILED_HEADERS"
"""With `0` workers compile no C++ headers ahead, which takes each some 10 s and saves it 4 s each time that it compiles
kernels for a CPU. The path of a folder of such headers, made by torch outside of a jail: workers read them there. Torch
takes only those whose name stands for its own compiler, options and sources."""
HEADERS = "tmp/torchinductor_kernelopt/precompiled_headers"
"""Where torch looks for them, below scratch: by the user's name and TMPDIR."""

HOST_SETTINGS = {VECTOR_SETS: VECTOR_SETS, COMPILED_HEADERS: "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"}
"""The only settings of the host's that workers see, `0` or `1`: outside -> inside."""


def driver_folders() -> list[str]:
    """Existing folders that hold libcuda, from the usual places and this process's own loader path."""
    own = [entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry.startswith("/")]
    return [f for f in dict.fromkeys([*DRIVER_FOLDERS, *own]) if (Path(f) / "libcuda.so.1").exists()]


def compiled_headers() -> Path | None:
    """The folder that the host's setting names."""
    folder = Path(os.environ.get(COMPILED_HEADERS, ""))
    return folder if folder.is_absolute() and folder.is_dir() else None


def _make(scratch: Path, folder: str) -> None:
    """A folder below scratch. What an earlier process left in its place, a link above all, is taken away first."""
    at = scratch
    for part in folder.split("/"):
        at = at / part
        if at.is_symlink() or (at.exists() and not at.is_dir()):
            at.unlink()
        at.mkdir(exist_ok=True)


def worker_environment(
    *, python: str, scratch: Path, visible_gpu: str, interpret: bool, extra: Mapping[str, str]
) -> dict[str, str]:
    """`visible_gpu`: the value of CUDA_VISIBLE_DEVICES, empty for none. `extra` wins. Makes the folders it names."""
    for folder in ("home", "tmp", *(f"cache/{name}" for name in CACHES.values())):
        _make(scratch, folder)
    values = {
        "PATH": ":".join(dict.fromkeys([str(Path(python).parent), *PROGRAM_FOLDERS])),
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        # torch names its cache folder after the user, whom /etc/passwd inside need not know.
        "USER": "kernelopt",
        "LOGNAME": "kernelopt",
        "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": visible_gpu,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
        "KMP_BLOCKTIME": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE": "0",
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    }
    values |= {variable: str(scratch / "cache" / folder) for variable, folder in CACHES.items()}
    values |= {inside: os.environ[name] for name, inside in HOST_SETTINGS.items()
               if os.environ.get(name) in ("0", "1")}
    if (headers := compiled_headers()) is not None:
        _make(scratch, HEADERS)
        for header in headers.glob("*.h*"):
            link = scratch / HEADERS / header.name
            link.unlink(missing_ok=True)
            link.symlink_to(header)
    if found := driver_folders():
        values["LD_LIBRARY_PATH"] = ":".join(found)
    if visible_gpu:
        # Where it is only asked whether there is a GPU, CUDA is not started: under Landlock that works in the first
        # process alone, whose /proc/self it may write to, and a process that has started CUDA cannot be forked.
        values["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if interpret:
        values["TRITON_INTERPRET"] = "1"
    return values | dict(extra)
