"""The documents against the code: paths, commands, options, messages and worker methods that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import click
import pytest

from kernelopt_bot.cli.main import group
from kernelopt_bot.config import parse
from kernelopt_bot.sandbox.worker.kernel_methods import METHODS as KERNEL_METHODS
from kernelopt_bot.sandbox.worker.model_methods import METHODS as MODEL_METHODS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "NOTES.md"]
MODULES = sorted((ROOT / "kernelopt_bot").rglob("*.py"))
ROOMS = [ROOT, ROOT / "docs", ROOT / "kernelopt_bot", ROOT / "benchmarks"]
MADE = {"report.md", "report.json", "manifest.json", "trials.jsonl", "calls.jsonl", "pull-request.md", "bundle.json",
        "job.json", "kernelopt-job/job.json", "exchanges.jsonl", "spend.jsonl", "trace.html", "sweep.json",
        "test_kernelopt_TARGET.py"}
"""Files that a run writes."""
EXAMPLES = ("path/to/", "src/net/", "benchmarks/inputs.py", "models/net.py", "other/file.py", "kernels/", "PATH")
"""Files of the reader's."""
FILE = re.compile(r"^[\w./-]+\.(py|md|json|jsonl|yml|toml|txt|j2|sh)$|^[\w.-]+(/[\w.-]+)*/$")

in_documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))


def spans(text: str) -> Iterator[str]:
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))


def commands(text: str) -> Iterator[list[str]]:
    """Every `kernelopt ...` in a code span or at the start of a code block's line, by words."""
    blocks = "\n".join(re.findall(r"^```.*?^```$", text, flags=re.M | re.S))
    found = [s for s in spans(text) if s.startswith("kernelopt ")]
    found += re.findall(r"^\s*(?:\$ )?(kernelopt [a-z].*)$", blocks, re.M)
    for line in found:
        yield line.partition("#")[0].split()


def exists(name: str, document: Path) -> bool:
    if name in MADE or name.startswith(EXAMPLES) or name.startswith("."):
        return True
    if any((room / name).exists() for room in (*ROOMS, document.parent)):
        return True
    # A module named alone inside its room's row.
    return "/" not in name and any(m.name == name for m in MODULES)


@in_documents
def test_every_link_leads_somewhere(document: Path) -> None:
    text = document.read_text()
    links = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text)]
    for link in links:
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        goal = document.parent / path if path else document
        assert goal.exists(), link
        if anchor and goal.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", goal.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", t).strip().lower().replace(" ", "-") for t in titles}, link


@in_documents
def test_every_file_that_is_named_exists(document: Path) -> None:
    missing = [s for s in spans(document.read_text()) if FILE.match(s) and not exists(s, document)]
    made_by_a_run = {"kernelopt-out/", "demo-out/", "kernelopt_kernels/", ".venv/"}
    assert set(missing) <= made_by_a_run


@in_documents
def test_every_command_and_option_exists(document: Path) -> None:
    for words in commands(document.read_text()):
        for name in words[1].split("|"):
            command = group.get_command(click.Context(group), name)
            assert command is not None or words[1].startswith("-"), " ".join(words)
            if isinstance(command, click.Group) and len(words) > 2:
                command = command.commands.get(words[2])
                assert command is not None, " ".join(words)
            known = {o for p in (command.params if command else group.params) if isinstance(p, click.Option)
                     for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
            assert {w.partition("=")[0] for w in words[2:] if w.startswith("--")} <= known, " ".join(words)


def test_the_readme_s_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    said = {m for d in DOCUMENTS for m in re.findall(r"\bmake ([a-z-]+)(?=`|\s+#|$)", d.read_text(), re.M)}
    assert "demo" in said
    assert said <= targets


def test_the_readme_s_configuration_is_valid() -> None:


    block = re.search(r"^```yaml\n(version: 1\n.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert block is not None
    assert parse(block[1], ".kernelopt.yml").config.targets[0].entry == "Encoder"


def test_every_message_of_the_troubleshooting_page_is_in_the_code() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.M)
    code = "\n".join(m.read_text() for m in [*MODULES, *sorted((ROOT / "tools").glob("*.sh"))])
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    assert len(rows) >= 12
    for message in rows:
        for part in message.split("…"):
            assert part in code, message


def test_every_worker_method_is_documented_under_its_role() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    model, kernel = text.index("**model worker** ("), text.index("**kernel worker** (")
    end = text.index("`Facts` =")
    for part, methods in ((text[model:kernel], MODEL_METHODS), (text[kernel:end], KERNEL_METHODS)):
        assert set(re.findall(r"^\| `([a-z_]+)` \|", part, re.M)) == set(methods) - {"hello"}


def test_every_module_of_the_search_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text[text.index("## Search"):text.index("## The artifact")]
    named = set(re.findall(r"`([a-z_]+\.py)`", section))
    assert named == {m.name for m in MODULES if m.parent.name == "search"} - {"__init__.py"}


def test_modules_are_short() -> None:
    lengths = {str(m.relative_to(ROOT)): len(m.read_text().splitlines()) for m in MODULES if m.name != "__init__.py"}
    assert median(lengths.values()) < 150
    assert not {name: n for name, n in lengths.items() if n > 500}
