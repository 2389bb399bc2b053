"""Which release wrote a runtime, and the tool that notes it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from kernelopt_bot import __version__
from kernelopt_bot.compiler.bundle import runtime_text
from kernelopt_bot.compiler.releases import digest, read_table, release_of


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_tool", Path(__file__).parents[2] / "tools" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_this_release_and_none() -> None:
    assert release_of(runtime_text(), {}) == __version__
    assert release_of(runtime_text() + "#", {}) == "" == release_of("", {"1": "0" * 64})
    assert release_of("x", {"0.0.1": digest("y"), "0.0.2": digest("x")}) == "0.0.2"


def test_the_table_fits_this_release() -> None:
    """Once a version is released, its runtime stays: what changes it has to raise the version."""
    assert read_table().get(__version__, digest(runtime_text())) == digest(runtime_text())


@pytest.mark.parametrize("text", ["[]", '{"0.1.0": 1}', '{"0.1.0": "short"}', "{"])
def test_a_table_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(ValueError):
        read_table(tmp_path / "table.json")


def test_a_release_is_added_once_and_never_changed(tool: ModuleType, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"0.0.1": "0" * 64}))
    assert tool.main(["--check"], table) == 1 and "run tools/release.py" in capsys.readouterr().err
    assert tool.main([], table) == 0 == tool.main([], table) == tool.main(["--check"], table)
    assert read_table(table) == {"0.0.1": "0" * 64, __version__: digest(runtime_text())}
    table.write_text(json.dumps({__version__: "0" * 64}))
    assert tool.main([], table) == 1 and "raise the version" in capsys.readouterr().err
    assert read_table(table) == {__version__: "0" * 64}
