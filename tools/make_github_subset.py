"""Cuts GitHub's official OpenAPI description down to what the stand-in of the tests serves.

Usage: make_github_subset.py DESCRIPTION OUTPUT, where DESCRIPTION is `generated/api.github.com.json` of the npm package
@octokit/openapi 23.0.2 (MIT licence). The operations are those that `tests/github_stand_in` handles.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.github_stand_in.server import HANDLERS


def subset(description: dict[str, Any], operations: frozenset[str]) -> dict[str, Any]:
    """The paths of `operations` and every component that they refer to. Raises ValueError for unknown operations."""
    kept: dict[str, Any] = {
        "openapi": description["openapi"],
        "info": description["info"],
        "paths": {},
        "components": {},
    }
    found = set()
    for path, item in description["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict) and operation.get("operationId") in operations:
                found.add(operation["operationId"])
                shared = {k: v for k, v in item.items() if k == "parameters"}
                slim = {
                    k: v for k, v in operation.items() if k not in ("description", "x-github", "externalDocs", "tags")
                }
                kept["paths"].setdefault(path, shared)[method] = slim
    if missing := operations - found:
        raise ValueError(f"not in the description: {sorted(missing)}")
    seen: set[str] = set()
    todo: list[Any] = [kept["paths"]]
    while todo:
        for reference in set(re.findall(r'"\$ref": "#/components/([^"]+)"', json.dumps(todo.pop()))) - seen:
            seen.add(reference)
            kind, name = reference.split("/", 1)
            component = description["components"][kind][name]
            kept["components"].setdefault(kind, {})[name] = component
            todo.append(component)
    return kept


def nullable_enumerations(node: Any) -> Any:
    """`null` in every enumeration that is nullable: GitHub answers it, and OpenAPI 3.0.3 wants it there."""
    if isinstance(node, list):
        return [nullable_enumerations(x) for x in node]
    if not isinstance(node, dict):
        return node
    made = {k: nullable_enumerations(v) for k, v in node.items()}
    if made.get("nullable") is True and isinstance(made.get("enum"), list) and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    cut = nullable_enumerations(subset(json.loads(source.read_text()), frozenset(HANDLERS)))
    target.write_text(json.dumps(cut, separators=(",", ":"), sort_keys=True) + "\n")
    print(f"{target}: {len(HANDLERS)} operations, {target.stat().st_size >> 10} KiB")
