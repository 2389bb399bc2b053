"""`kernelopt bench` as a person calls it, on problems of our own in KernelBench's layout."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelopt_bot.bench import store
from kernelopt_bot.cli.bench import search_seconds
from kernelopt_bot.cli.main import main
from tests.cli.test_bad_input import GOOD, environment, workers_of

HEADROOM = "level\tproblem\tkernel_ceiling_x\n1\t1_Nothing\t1.5\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A model; one whose inputs raise, once the file `go` is there; a file without a model. The even one must not be
    touched."""
    folder = tmp_path / "clone" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Doubled.py").write_text(GOOD)
    waits = (f"def get_inputs():\n    while not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n"
             "        time.sleep(0.05)\n    raise ValueError('no inputs')\n")
    (folder / "3_Waits.py").write_text(f"import pathlib\nimport time\n{GOOD.partition('def get_inputs')[0]}{waits}")
    (folder / "5_Nothing.py").write_text("def get_inputs():\n    return []\n")
    (folder / "2_Held_out.py").write_text("raise SystemExit('touched')\n")
    return tmp_path / "clone"


def arguments(clone: Path, output: Path, *more: str) -> list[str]:
    return ["bench", "kernelbench", "--path", str(clone), "--levels", "1", "--device", "cpu", "--levers", "dispatch",
            "--budget-search", "1", "--sandbox", "process", "--output", str(output), *more]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cut_short_resumed_merged_and_shown(tmp_path: Path, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-m", "kernelopt_bot", *arguments(clone, output)], cwd=tmp_path,
                               env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130 and first.startswith("level 1, 1: measured, nothing adopted")
    kept = output / "records" / "level1-001.json"
    assert [p.name for p in (output / "records").iterdir()] == [kept.name] and workers_of(output) == []
    before = kept.read_bytes()
    (tmp_path / "go").touch()

    (tmp_path / "headroom.tsv").write_text(HEADROOM)
    assert main(arguments(clone, output, "--json", "--headroom", str(tmp_path / "headroom.tsv"))) == 0
    captured = capsys.readouterr()
    level = json.loads(captured.out)["levels"]["1"]
    assert level["statuses"] == {"measured": 1, "unsupported": 2} and level["problems"] == 3
    assert level["geomean"] == {name: 1.0 for name in level["geomean"]} and level["captured"] == 0.0
    assert "level 1, 3: unsupported" in captured.err and "level 1, 1:" not in captured.err
    assert kept.read_bytes() == before and not list((output / "work").iterdir())

    assert main(["bench", "merge", str(output), "--output", str(tmp_path / "result.json")]) == 0
    result = store.load(tmp_path / "result.json")
    assert [r.number for r in result.records] == [1, 3, 5] and result.select == "odd"
    one = result.records[0]
    assert set(one.times_us) == {"default", "eager"} and (one.metric, one.cache) == ("latency", "warm")
    assert one.noise is not None and one.search_s is not None
    # A fast machine screens a batch within the second, a slow one says that it did not.
    assert any(words in one.levers["dispatch"].reason for words in ("search time of 1 s", "no candidate looked faster"))
    assert main(["bench", "report", str(tmp_path / "result.json"), "--output", str(tmp_path / "page.md")]) == 0
    assert "[result.json](result.json)" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(("more", "words"), [
    (["--levels", "7"], "--levels"), (["--select", "some"], "1,3,5-9"), (["--budget-search", "0"], "20/90"),
    (["--levers", "magic"], "kernel,dispatch,launch,region"), (["--device", "tpu"], "cuda:0,cuda:1"),
    (["--device", "cpu,cuda:0"], "cuda:0,cuda:1"), (["--together", "2", "--device", "cpu"], "--together"),
    (["--retry", "failed"], "out_of_memory"),
    (["--select", "7"], "select other numbers"), (["--headroom", "none.tsv"], "--headroom")])
def test_bad_options(tmp_path: Path, clone: Path, more: list[str], words: str,
                     capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(clone, tmp_path / "out", *more)) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_search_seconds() -> None:
    assert search_seconds("20/90") == {1: 20.0, 2: 20.0, 3: 90.0, 4: 90.0}
    assert set(search_seconds("30").values()) == {30.0}
