#!/usr/bin/env python3
"""Writes `docs/action.md` from `action.yml` and the reusable workflow. `--check` only compares; then 1 means: stale."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "action.md"
_HEAD = """# The action and the reusable workflow

Made by `python tools/action_reference.py`; `tests/tools/test_action_reference.py` compares. How they fit together is in
[first-hour.md](first-hour.md), what each phase may do in [permissions.md](permissions.md).
"""
_WORKFLOW = """## The reusable workflow

`.github/workflows/kernelopt.yml` runs the three phases; the files in [workflows/](workflows/) call it. The caller's job
grants `actions: write`, `checks: write`, `contents: write` and `pull-requests: write`.
"""
_ACTION = """## The action

One step. A composite action enforces no required inputs, so every input has a default.
"""


def reference() -> str:
    """The page as Markdown."""
    action: Mapping[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    workflow = yaml.safe_load((ROOT / ".github/workflows/kernelopt.yml").read_text(encoding="utf-8"))
    called: Mapping[str, Any] = workflow[True]["workflow_call"]  # YAML 1.1 reads `on` so.
    return "\n".join([
        _HEAD, _ACTION,
        "### Inputs\n", *_inputs(action["inputs"]),
        "\n### Outputs\n", *_outputs(action["outputs"]), "",
        _WORKFLOW,
        "### Inputs\n", *_inputs(called["inputs"]),
        "\n### Secrets\n", *_outputs(called["secrets"], "secret"),
        "\n### Outputs\n", *_outputs(called["outputs"])]) + "\n"


def _inputs(inputs: Mapping[str, Any]) -> list[str]:
    rows = ["| input | default | meaning |", "|---|---|---|"]
    for name, given in inputs.items():
        default = str(given["default"])
        # The action's own descriptions end with their default, for readers of the Marketplace.
        meaning = given["description"].partition(" Default is ")[0]
        rows.append(f"| `{name}` | {f'`{default}`' if default else 'empty'} | {_cell(meaning)} |")
    return rows


def _outputs(outputs: Mapping[str, Any], what: str = "output") -> list[str]:
    return [f"| {what} | meaning |", "|---|---|",
            *(f"| `{name}` | {_cell(given['description'])} |" for name, given in outputs.items())]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").strip()


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return int(PAGE.read_text(encoding="utf-8") != reference())
    PAGE.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
