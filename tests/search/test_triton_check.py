"""`kernelopt check` of a Triton kernel: its launches, recorded in the jail, or why there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelopt_bot.cli.check import wanted
from kernelopt_bot.cli.main import main
from kernelopt_bot.sandbox.bubblewrap import BubblewrapJail
from kernelopt_bot.targets.triton_kernels import TritonTarget

EXAMPLE = Path(__file__).parents[2] / "examples/triton/swiglu.py"


def test_launches_and_what_keeps_a_kernel_from_launching(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if missing := BubblewrapJail().missing():
        pytest.skip(missing[0])
    text = EXAMPLE.read_text().replace("(24, 344)", "(4, 40)")
    (tmp_path / "ops.py").write_text(text)
    (tmp_path / "broken.py").write_text(text.replace("return [lambda: swiglu(gate_up)]", "raise OSError('no data')"))
    assert main(["check", "--root", str(tmp_path), "--device", "cpu", "--json"]) == 2
    broken, good = json.loads(capsys.readouterr().out)
    assert "no data" in broken["error"]
    assert good["launches"] == ["gate_up_ptr: (4, 80) float32, out_ptr: (4, 40) float32, n_cols=40, n_elements=160 "
                                "(grid 1; 1 times)"]
    assert (good["error"], good["inputs"], good["eager_ms"]) == ("", [], None)


def test_a_kernel_is_named_like_a_model(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(EXAMPLE.read_text())
    ([target], broken) = wanted(("ops.py:swiglu_kernel",), tmp_path)
    assert isinstance(target, TritonTarget) and broken == []
    (tmp_path / "ops.py").write_text(EXAMPLE.read_text().replace("inputs=make_inputs", "inputs=gone"))
    (tmp_path / ".kernelopt.yml").write_text("device: cpu\n")
    found, [left] = wanted((), tmp_path)
    assert found == [] and left.target == "ops.py:swiglu_kernel" and "no function gone" in left.error
