"""Pictures of what people see: comments, check, summary, pull request and dashboard, rendered from committed records.

Usage: pictures.py [NAME...]. The Markdown is the bot's own, from `benchmarks/results/*.json` and, for states that no
record has, from example words. markdown-it-py and a small style sheet stand for GitHub's rendering; a headless
Chromium takes the picture. Needs `chromium` on the path, or its path in CHROMIUM.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from PIL import Image, ImageChops

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernelopt_bot.events.commands import Command
from kernelopt_bot.events.facts import Facts
from kernelopt_bot.events.job import Job, PullRequest, Reply
from kernelopt_bot.events.policy import authorise
from kernelopt_bot.events.settings import Policy
from kernelopt_bot.publish import shown
from kernelopt_bot.publish.checks import Annotation, notes_of
from kernelopt_bot.publish.content import publication
from kernelopt_bot.publish.dashboard import Board, Held, Sweep, Unoptimised
from kernelopt_bot.publish.dashboard import body as dashboard_body
from kernelopt_bot.publish.seen import Seen, finished
from kernelopt_bot.report.build import build
from kernelopt_bot.report.restore import restore
from kernelopt_bot.report.summary import summarise

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benchmarks" / "results"
OUT = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, LIMIT = 920, 3000, 150_000
_HEIGHTS = {"pull-request": 1500}
"""Pixels of what is longer than anybody needs to see of it."""
PAGE = "https://github.com/acme/models"
RUN = f"{PAGE}/actions/runs/1"
HEAD = "4f2c9e71d03b" + "0" * 28
ALERT = re.compile(r"<blockquote>\s*<p>\[!(NOTE|WARNING)\](?:<br ?/?>)?\s*(.*?)</blockquote>", re.S)
STYLE = (Path(__file__).parent / "pictures.css").read_text()
DOTS = {"success": "#1a7f37", "neutral": "#818b98", "failure": "#d1242f", "cancelled": "#818b98"}


def main(names: list[str]) -> int:
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if browser is None:
        print("no chromium: install it, or name it in CHROMIUM", file=sys.stderr)
        return 1
    for name, make in PICTURES.items():
        if not names or name in names:
            path = picture(browser, name, make(), _HEIGHTS.get(name, HEIGHT))
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size >> 10} KiB")
    return 0


def picture(browser: str, name: str, body: str, height: int = HEIGHT) -> Path:
    """Raises RuntimeError where the picture is too large to commit."""
    path = OUT / f"{name}.png"
    with tempfile.TemporaryDirectory() as scratch:
        page, shot = Path(scratch) / "page.html", Path(scratch) / "shot.png"
        page.write_text(f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>{body}', encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   f"--user-data-dir={scratch}/profile", f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}",
                   page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        image = Image.open(shot).convert("RGB")
        used = ImageChops.difference(image, Image.new("RGB", image.size, "white")).getbbox()
        bottom = min(height, (used[3] if used else 0) + 16)
        image.crop((0, 0, WIDTH, bottom)).quantize(256, method=Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    if path.stat().st_size > LIMIT:
        raise RuntimeError(f"{path} has {path.stat().st_size} bytes: show less in it")
    return path


def markdown(text: str) -> str:
    rendered = MarkdownIt("commonmark", {"html": True, "breaks": True}).enable("table").render(text)
    return ALERT.sub(lambda m: f'<div class="alert {m[1].lower()}"><b>{m[1].title()}</b><p>{m[2]}</div>', rendered)


def box(head: str, text: str) -> str:
    return f'<div class="box"><div class="head">{head}</div><div class="body">{markdown(text)}</div></div>'


def comment(seen: Seen) -> str:
    return box("<b>kernelopt</b> bot commented", shown.comment(seen))


def check(seen: Seen, conclusion: str, notes: tuple[Annotation, ...]) -> str:
    summary, text = shown.check(seen)
    head = f'<span class="dot" style="background:{DOTS[conclusion]}"></span><b>KernelOPT</b>: {html.escape(seen.title)}'
    marks = "".join(
        f'<div class="alert {"note" if n.level == "notice" else "warning"}"><b>{html.escape(n.title)}</b>'
        f"<code>{html.escape(n.path)}#L{n.line}</code><p>{html.escape(n.message)}</p></div>" for n in notes)
    return box(head, f"{summary}\n\n{text}") + (f"<h4>Annotations</h4>{marks}" if notes else "")


def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDS / f"{name}_2026-11-30.json").read_text())["report"]
    return found


def ended(name: str, **more: Any) -> Seen:
    return finished(summarise(record(name)), head_sha=HEAD, run_url=RUN, **more)


def state(name: Any, reason: str = "") -> Seen:
    return Seen(name, HEAD, reason, run_url=RUN, asked=True)


def gained(name: str = "demo_cpu") -> Seen:
    return ended(name, pull_number=8, pull_url=f"{PAGE}/pull/8")


def failed() -> Seen:
    """A model of the demo that imports what nobody has, tried now; paths of this machine are not shown."""
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "models" / "host_bound.py"
        model.parent.mkdir()
        (Path(scratch) / ".kernelopt.yml").write_text("version: 1\n")
        text = (ROOT / "examples" / "demo" / "host_bound.py").read_text()
        model.write_text(text.replace("\nimport torch\n", "\nimport a_package_of_yours\nimport torch\n", 1))
        command = [sys.executable, "-m", "kernelopt_bot", "optimize", "models/host_bound.py", "--device", "cpu",
                   "--json"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=300,
                              check=False)
    text = done.stdout.replace(sys.executable, ".venv/bin/python").replace(f"{scratch}/", "")
    return finished(summarise(json.loads(text)), head_sha=HEAD, run_url=RUN, asked=True)


def refused() -> Seen:
    """A command on a fork's pull request, by the policy's own words."""
    pull = PullRequest(7, "Faster attention", "someone", "main", HEAD, "main", "0" * 40, fork=True, draft=False)
    job = Job("issue_comment", "created", "acme/models", "", "", operation="optimize", actor="maintainer",
              command=Command("optimize"), number=7, comment_id=1)
    said = authorise(job, Facts(pull, permission="write", commands_today=0), Policy())
    assert isinstance(said, Reply)
    return state("refused", said.reason)


def pull_request() -> str:
    """The body's first screen; of the report below, what a folded page shows."""
    run = restore(json.dumps(record("optimize_conv_groupnorm_h200")).encode())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / run.results[0].artifact
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}\n")
        made = publication(run, build(run), Path(scratch), base_ref="faster-models", base_sha=HEAD)
    assert made is not None, "the record's gain is confirmed"
    return box(f"<b>{html.escape(made.title)}</b> opened by <b>kernelopt</b> bot", made.body)


def dashboard() -> str:
    """Gains of the records; the states beside the first are examples of the code's words."""
    found = []
    for name in ("optimize_conv_groupnorm_h200", "optimize_max_pooling_h200", "optimize_long_softmax_h200"):
        t = summarise(record(name)).faster[0]
        assert t.gain is not None
        found.append(Held(t.name, "held", t.gain.speedup, t.gain.low, t.gain.high, t.environment))
    stale = Held(found[1].target, "stale", found[1].speedup, found[1].low, found[1].high, found[1].environment,
                 "made for triton 3.6.0, found 3.7.1", 12, f"{PAGE}/pull/12")
    left = [summarise(record(f"optimize_{n}_h200")).targets[0] for n in ("resnet_like", "transformer_block")]
    board = Board((found[0], stale, found[2]),
                  tuple(Unoptimised(t.name, t.path, f"nothing adopted, {t.candidates} candidates") for t in left),
                  Sweep("2026-11-30 03:17 UTC", "3 artifacts verified, 1 stale", f"{PAGE}/actions/runs/2"))
    return box("<b>KernelOPT dashboard</b> #3 opened by <b>kernelopt</b> bot", dashboard_body(board))


def lines(seen: Seen) -> tuple[Annotation, ...]:
    """Records of before 2026-12 do not say where the class is."""
    assert seen.run is not None
    found = [replace(t, line=1 + (ROOT / t.path).read_text().splitlines().index(f"class {t.entry}(nn.Module):"))
             for t in seen.run.targets]
    return notes_of(replace(seen, run=replace(seen.run, targets=tuple(found))))


PICTURES: dict[str, Callable[[], str]] = {
    "comment-queued": lambda: comment(state("queued")),
    "comment-running": lambda: comment(state("running")),
    "comment-gained": lambda: comment(gained()),
    "comment-nothing": lambda: comment(ended("optimize_rmsnorm_swiglu_h200", asked=True)),
    "comment-refused": lambda: comment(refused()),
    "comment-error": lambda: comment(failed()),
    "comment-cancelled": lambda: comment(finished(None, head_sha=HEAD, cancelled=True, run_url=RUN, asked=True)),
    "check-gained": lambda: check(gained("optimize_conv_groupnorm_h200"), "success",
                                  lines(gained("optimize_conv_groupnorm_h200"))),
    "check-nothing": lambda: check(ended("optimize_resnet_like_h200"), "neutral", ()),
    "summary": lambda: f'<div class="box"><div class="body">{markdown(shown.summary(gained()))}</div></div>',
    "pull-request": pull_request,
    "dashboard": dashboard,
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
