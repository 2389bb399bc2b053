from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.gate_speed import LIMITS, main


@pytest.mark.slow
@pytest.mark.exhaustive
def test_without_a_gpu_the_sandbox_s_share_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    done = CliRunner().invoke(main, [str(out), "--device", "cpu", "--elements", "4096", "--repeats", "2",
                                    "--without-gate-4"],
                              catch_exceptions=False)
    assert done.exit_code == 0, done.output
    record = json.loads(out.read_text())
    assert record["gpu"] == "" and record["gate_4"] is None and record["sandbox"]["name"] == record["jail"] != "process"
    assert set(record["limits"]) == {"gates_1_and_2_s", "sandbox_s"}
    for name, found in record["limits"].items():
        assert found["limit"] == LIMITS[name] and found["kept"] is (found["seconds"] <= found["limit"])
    assert record["gates_1_and_2"]["after_compile"]["families"] == 7
    assert all(t > 0 for t in record["sandbox"]["jail"]["round_trips_s"])
