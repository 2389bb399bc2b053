from __future__ import annotations

import yaml

from tools import action_reference


def test_the_page_is_what_action_and_workflow_say() -> None:
    assert action_reference.main(["--check"]) == 0, "run `python tools/action_reference.py`"


def test_every_input_and_output_has_its_row_and_its_default() -> None:
    page = action_reference.reference()
    action = yaml.safe_load((action_reference.ROOT / "action.yml").read_text())
    for name, given in action["inputs"].items():
        default = f"`{given['default']}`" if given["default"] else "empty"
        assert f"| `{name}` | {default} | " in page
    for name in action["outputs"]:
        assert f"\n| `{name}` | " in page
