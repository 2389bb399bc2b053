"""Where the texts that people read live, and how they are rendered."""

from __future__ import annotations

import site
import sys
from collections.abc import Callable
from pathlib import Path

import jinja2

# A wheel puts its data files below `share` of the environment, or of the user with `pip install --user`.
SHARED = tuple(Path(p) / "share" / "kernelopt" for p in (sys.prefix, site.getuserbase()))
# A checkout (or an editable install) has them beside the package.
_PLACES = (Path(__file__).resolve().parents[2] / "templates", *(p / "templates" for p in SHARED))


def environment(folder: str, finalize: Callable[[object], object] | None = None) -> jinja2.Environment:
    """Templates of one folder, `report` or `publish`. A missing value is an error. Raises FileNotFoundError."""
    place = next((p / folder for p in _PLACES if (p / folder).is_dir()), None)
    if place is None:
        raise FileNotFoundError(f"no templates/{folder} in {' or '.join(str(p) for p in _PLACES)}")
    # Not HTML: what goes in is already escaped for its format, by the Markdown renderer or by `phrase`.
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(place),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize,
    )
