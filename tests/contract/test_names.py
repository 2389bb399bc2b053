import importlib

import pytest
import torch

from kernelopt_bot.contract import names

MODULES = {
    "tl": "triton.language", "triton_helpers": "torch._inductor.runtime.triton_helpers",
    "libdevice": "triton.language.extra.libdevice", "tl_math": "triton.language.math", "triton": "triton",
}


def exists(name: str) -> bool:
    root, *rest = name.split(".")
    found = importlib.import_module(MODULES[root])
    for part in rest:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("name", sorted(names.EXPORTED - names.NEWER))
def test_every_exported_name_exists(name: str) -> None:
    assert exists(name)


def test_newer_names_exist_from_the_version_they_are_said_to() -> None:
    old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
    assert {name for name in names.NEWER if exists(name)} == (set() if old else set(names.NEWER))


def test_nothing_dangerous_is_exported() -> None:
    dangerous = ("asm", "extern", "print", "pointer_type", "core", "standard", "warnings", "map_elementwise")
    assert not [n for n in names.EXPORTED if any(d in n for d in dangerous)]


def test_no_exported_name_is_a_module() -> None:
    for name in sorted(names.EXPORTED - names.NEWER):
        module, _, attribute = name.rpartition(".")
        root, *rest = module.split(".")
        found = importlib.import_module(".".join([MODULES[root], *rest]) if not rest else MODULES[root])
        for part in rest:
            found = getattr(found, part, found)
        assert not hasattr(getattr(found, attribute, None), "__path__")
        assert type(getattr(found, attribute, None)).__name__ != "module"
