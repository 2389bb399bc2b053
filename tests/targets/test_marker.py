"""The comment by which a source file asks to be left alone."""

from __future__ import annotations

import pytest

from kernelopt_bot.targets.marker import OFF, opts_out


@pytest.mark.parametrize(("text", "out"), [
    (f"import torch\n{OFF}\n", True), ("    #kernelopt:skip\r\n", True), ("x = 1  # kernelopt: off\n", False),
    ("# kernelopt: inputs=make\n", False), ("# kernelopt: official\n", False), ("", False)])
def test_the_marker_in_a_source_file(text: str, out: bool) -> None:
    assert opts_out(text) is out
