"""The comment by which a source file asks to be left alone."""

from __future__ import annotations

import re

OFF = "# kernelopt: off"

_OFF = re.compile(r"^[ \t]*#[ \t]*kernelopt:[ \t]*(off|skip)[ \t]*\r?$", re.MULTILINE)


def opts_out(text: str) -> bool:
    """Whether a source file has the marker `# kernelopt: off` (or `skip`) on a line of its own.

    By text, not by syntax: a file that does not parse may opt out too, and a marker in a string only leaves it alone.
    """
    return bool(_OFF.search(text))
