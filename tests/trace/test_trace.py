"""`kernelopt trace`: the tree, what each role gave, costs, and the page, from a run folder made by the real writers."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from kernelopt_bot.cli.main import main
from kernelopt_bot.errors import InputError
from kernelopt_bot.report.svg import LIGHT
from kernelopt_bot.trace import page, picture, roofline, text
from kernelopt_bot.trace.facts import Node, Trace, spots, yields
from kernelopt_bot.trace.load import load
from tests.trace.run_folder import NAME, kernel, make, verdict


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("output")
    make(folder)
    return folder


@pytest.fixture(scope="module")
def trace(output: Path) -> Trace:
    return load(output)


def shown(trace: Trace, most: int = 12) -> str:
    out = StringIO()
    text.show(trace, Console(file=out, width=200, no_color=True), most=most)
    return out.getvalue()


def nodes(trace: Trace) -> dict[str, tuple[Node, int]]:
    return {node.trial.candidate.id: (node, depth) for node, depth in trace.targets[0].walk()}


def test_candidates_hang_below_the_ones_they_were_made_from(trace: Trace) -> None:
    target, = trace.targets
    assert [(s.lever, s.title) for s in target.spots] == [
        ("dispatch", ""), ("kernel", "triton_red_fused_softmax_0 (graph 0, step 2)"), ("kernel", "graph 0, steps 4, 5"),
        ("kernel", "triton_poi_fused_add_1 (graph 0, step 4)")]
    found = nodes(trace)
    assert {k: depth for k, (_, depth) in found.items()} == {
        "dispatch-1": 0, "split-1": 0, "llm-1": 0, "llm-2": 1, "llm-3": 0, "rows-1": 0}
    assert {k: (n.fate, n.kind) for k, (n, _) in found.items()} == {
        "dispatch-1": ("passed over", "passed over"), "split-1": ("passed over", "passed over"),
        "llm-1": ("correctness", "fail"), "llm-2": ("adopted", "adopted"), "llm-3": ("static", "fail"),
        "rows-1": ("performance", "not measured")}
    assert found["llm-2"][0].exchange == "r0-executor-0-ab-a1" and found["split-1"][0].exchange == ""


def test_what_each_role_gave(trace: Trace) -> None:
    rows = {y.role: y for y in yields(trace.targets[0])}
    assert list(rows) == ["planner", "executor", "fuser"]
    executor = rows["executor"]
    assert (executor.asked, executor.answered, executor.candidates, executor.adopted) == (3, 2, 2, 1)
    assert executor.money_usd == pytest.approx(0.0375) and executor.input_tokens == 6000


def test_the_text_says_who_what_and_why(trace: Trace) -> None:
    said = " ".join(shown(trace).replace("\u00a0", " ").split())
    for words in (
        "models_net: 6 candidates, 1.210x (95% interval 1.180x to 1.240x)",
        "two rows a program [llm] ✓ static 0.500 s ✗ correctness 0.500 s family zero: 3 of 8 values are nan llm-1",
        "two rows a program [llm] 1.900x (40.00 µs to 21.05 µs) ✓ static 0.500 s ✓ correctness 3.20 s ✓ model 8.00 s",
        "? performance 0.500 s no GPU", "Model: 5 calls, 10000 tokens in, 1500 out, 0.0320 US dollars",
        "check_step 9.25 s", "executor llm 3 2 2 1 6000 900 0.0375 13.5"):
        assert words in said, words
    few = shown(trace, most=0)
    assert "llm-2" in few and "llm-3" not in few and "and 1 more (--all shows them)" in few


def test_a_run_without_report_or_model_is_shown_too(tmp_path: Path) -> None:
    run = make(tmp_path, report=False)
    (run / "spend.jsonl").unlink()
    (run / NAME / "exchanges.jsonl").unlink()
    trace = load(run)
    assert "no report of this run" in shown(trace) and "Model:" not in shown(trace)
    html = page.render(trace)
    assert "There is no report of this run" in html and "Not drawn" in html and "Exchanges" not in html
    assert roofline.draw(trace.targets[0], dark=False) is None


def test_a_report_of_another_run_is_not_believed(output: Path, tmp_path: Path) -> None:
    run = make(tmp_path, report=False)
    data = json.loads((output / "report.json").read_text())
    data["gates"][0]["id"] = "another"
    (tmp_path / "report.json").write_text(json.dumps(data))
    assert load(run).targets[0].result is None


def test_a_run_that_goes_on_is_read_and_not_touched(tmp_path: Path) -> None:
    run = make(tmp_path, report=False)
    for name in ("trials.jsonl", "exchanges.jsonl"):
        with (run / NAME / name).open("a") as file:
            file.write('{"schema": 1, "digest": "half')
    (run / NAME / "calls.jsonl").write_text('[1]\n{"method": "x"}\n')
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    trace = load(run / NAME)
    assert len(list(trace.targets[0].walk())) == 6 and trace.spending is not None
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
    with (run / NAME / "trials.jsonl").open("a") as file:
        file.write('\n{"schema": 1, "trial": {"candidate": {"kind": "Other"}}}\n')
    assert "1 records could not be read" in shown(load(run))


def test_a_ring_of_parents_has_an_end() -> None:
    ring = tuple(kernel(f"c{i}", "t", (1,), "llm", verdict("static"), parent=f"c{(i + 1) % 3}") for i in range(3))
    found = [n.trial.candidate.id for spot in spots(ring, (), None, {}) for n, _ in spot.walk()]
    assert sorted(found) == ["c0", "c1", "c2"]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.ids.add(given.get("id") or "")
        self.loads += [v for k, v in given.items() if k in ("src", "srcset") and v]
        if (given.get("href") or "").startswith("#"):
            self.targets.add((given["href"] or "")[1:])
        elif given.get("href"):
            self.loads.append(given["href"] or "")
        if tag not in ("meta", "img", "source", "rect", "circle", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "circle", "path"):
            assert self.open.pop() == tag


def test_the_page_holds_everything_itself(trace: Trace) -> None:
    html = page.render(trace)
    parsed = _Page()
    parsed.feed(html)
    assert parsed.open == [] and parsed.targets <= parsed.ids and len(parsed.targets) >= 9
    assert all(x.startswith("data:image/svg+xml;base64,") for x in parsed.loads) and len(parsed.loads) == 2
    assert not parsed.tags & {"script", "iframe", "object", "link", "b!"}
    # What the run's texts hold is shown, never interpreted.
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html and "&lt;/pre&gt;&lt;b&gt;" in html
    for words in ("facts of r0-planner", "family zero: 3 of 8 values are nan", "the model refused to answer",
                  "0.0125 US dollars", "Came of", "default-src &#39;none&#39;".replace("&#39;", "'")):
        assert words in html, words


def test_the_tree_picture_has_a_row_for_every_candidate_and_its_gates(trace: Trace) -> None:
    target = trace.targets[0]
    anchor = {n.trial.candidate.id: n.trial.candidate.id for n, _ in target.walk()}
    svg = ET.fromstring(picture.tree(target, anchor))
    links = svg.findall(".//a")
    assert {a.get("href") for a in links} == {f"#{name}" for name in anchor}
    kinds = [a.find("circle").get("class") for a in links]  # type: ignore[union-attr]
    assert sorted(filter(None, kinds)) == ["adopted", "fail", "fail", "not-measured", "passed-over", "passed-over"]
    gates = [c.get("class") for c in svg.iter("circle") if (c.get("class") or "").startswith("gate")]
    assert len(gates) == 6 * 4
    assert (gates.count("gate pass"), gates.count("gate fail"), gates.count("gate not-measured")) == (11, 2, 1)
    xs = [float(x) for c in svg.iter("circle") if (x := c.get("cx"))]
    assert max(xs) < picture.WIDTH and len(svg.findall("path")) == 11


def test_the_roofline_lies_where_the_figures_say(trace: Trace) -> None:
    target = trace.targets[0]
    softmax, add = roofline.bandwidths(target)
    assert softmax.y == pytest.approx(67_108_864 / 40e-6 / 1e9)
    # The best candidate of that step which no gate stopped took 21.05 microseconds.
    assert softmax.after == pytest.approx(softmax.y * 1.9)
    assert add.label.endswith("(3x)") and add.after is None and add.time_us == pytest.approx(27.0)
    product, = roofline.intensities(target)
    assert product.x == pytest.approx(8_589_934_592 / 50_331_648)
    assert product.y == pytest.approx(8_589_934_592 / 310e-6 / 1e9)
    svg = roofline.draw(target, dark=False)
    assert svg is not None
    drawn = ET.fromstring(svg)
    said = {"".join(t.itertext()).strip() for t in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"copies, measured: 4200 GB/s", "triton_red_fused_softmax_0", "extern_kernels.mm"} <= said
    assert LIGHT["after"].encode() in svg


def test_the_command_writes_the_page(output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html = tmp_path / "new" / "trace.html"
    assert main(["trace", str(output), "--html", str(html)]) == 0
    assert "adopted" in capsys.readouterr().out and re.match("<!doctype html>", html.read_text())
    assert main(["trace", str(tmp_path)]) == 2
    assert "no record of a run" in capsys.readouterr().err
    with pytest.raises(InputError):
        load(tmp_path)


def test_the_command_prints_json_for_programs(
    output: Path, tmp_path: Path, trace: Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(output), "--json", "--html", str(tmp_path / "page.html")]) == 0
    said = json.loads(capsys.readouterr().out)
    (target,) = said["targets"]
    assert (said["schema"], said["run"], target["name"]) == (1, trace.name, NAME)
    assert said["spending"]["settled"]["calls"] == 5 and target["workers"]["check_step"] == 9.25
    found = {n["trial"]["candidate"]["id"]: n for s in target["spots"] for n in s["nodes"]}
    first = found["llm-1"]
    assert first["gates"]["correctness"] == {
        "status": "fail", "reason": "family zero: 3 of 8 values are nan", "scope": "piece"}
    (repaired,) = first["children"]
    assert (repaired["trial"]["candidate"]["id"], repaired["fate"]) == ("llm-2", "adopted")
    assert repaired["exchange"] in {e["key"] for e in target["exchanges"]}
    assert len(found) + 1 == len(nodes(trace))
