"""GitHub's OpenAPI description: finding operations, checking requests and answers, and the examples in it."""

from __future__ import annotations

import copy
import functools
import json
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openapi_schema_validator import OAS30ReadValidator, OAS30WriteValidator, oas30_format_checker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

SUBSET = Path(__file__).parent / "github-api-subset.json"
_METHODS = ("get", "post", "put", "patch", "delete")
# These parameters hold slashes, though the description can't say so.
_WITH_SLASHES = frozenset({"ref", "base", "head"})


@dataclass(frozen=True)
class Operation:
    id: str
    method: str
    template: str
    pattern: re.Pattern[str]
    names: tuple[str, ...]
    parameters: tuple[dict[str, Any], ...]
    described: dict[str, Any]


class Description:
    def __init__(self, path: Path = SUBSET) -> None:
        # References are made absolute, so that each schema can be validated by itself.
        self._document = json.loads(re.sub(r'("\$ref"\s*:\s*")#/', r"\1urn:github#/", path.read_text()))
        self._registry: Registry[Any] = Registry().with_resource(
            "urn:github", Resource(contents=self._document, specification=DRAFT4)
        )
        found = [
            self._operation(method, template, item)
            for template, item in self._document["paths"].items()
            for method in _METHODS
            if method in item
        ]
        self.operations = tuple(sorted(found, key=lambda o: o.template.count("{")))

    def match(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """The operation and its path arguments; a literal path wins over one with parameters."""
        for o in self.operations:
            if o.method == method and (hit := o.pattern.match(path)):
                return o, dict(zip(o.names, map(urllib.parse.unquote, hit.groups()), strict=True))
        return None

    def request_errors(self, o: Operation, arguments: dict[str, str], query: dict[str, str], body: Any) -> list[str]:
        errors: list[str] = []
        known = set()
        for p in o.parameters:
            known.add(p["name"])
            raw = {"path": arguments, "query": query}.get(p["in"], {}).get(p["name"])
            if raw is not None:
                value = _typed(raw, self._resolved(p["schema"]).get("type"))
                errors += [f"{p['in']} {p['name']}: {e}" for e in self._errors(p["schema"], value, answer=False)]
            elif p.get("required") and p["in"] in ("path", "query"):
                errors.append(f"missing {p['in']} parameter {p['name']}")
        errors += [f"unknown query parameter {q}" for q in query if q not in known]
        return errors + self._body_errors(o, body)

    def answer_errors(self, o: Operation, status: int, body: Any) -> list[str]:
        answer = o.described["responses"].get(str(status))
        if answer is None:
            return [f"status {status} is not described"]
        content = self._resolved(answer).get("content", {}).get("application/json")
        return self._errors(content["schema"], body, answer=True) if content else []

    def example(self, operation: str, status: int = 200) -> Any:
        """A fresh copy of the first example of an operation's answer."""
        return copy.deepcopy(self._example(operation, status))

    @functools.cache  # noqa: B019 - one description lives as long as the test session
    def _example(self, operation: str, status: int) -> Any:
        described = next(o.described for o in self.operations if o.id == operation)
        content = self._resolved(described["responses"][str(status)])["content"]["application/json"]
        value = self._resolved(next(iter(content["examples"].values())))["value"]
        if isinstance(value, dict) and "$ref" in value:
            # Some examples refer to another example where their own value should stand.
            value = self._resolved(value)["value"]
        return value

    def _operation(self, method: str, template: str, item: dict[str, Any]) -> Operation:
        described = item[method]
        names = tuple(re.findall(r"\{([^/]+?)\}", template))
        pattern = re.escape(template)
        for name in names:
            pattern = pattern.replace(re.escape(f"{{{name}}}"), "(.+?)" if name in _WITH_SLASHES else "([^/]+)", 1)
        parameters = [self._resolved(p) for p in (*item.get("parameters", ()), *described.get("parameters", ()))]
        return Operation(
            described["operationId"],
            method.upper(),
            template,
            re.compile(f"^{pattern}$"),
            names,
            tuple(parameters),
            described,
        )

    def _body_errors(self, o: Operation, body: Any) -> list[str]:
        if "requestBody" not in o.described:
            return ["body sent to an operation that takes none"] if body is not None else []
        described = self._resolved(o.described["requestBody"])
        if "application/json" not in described["content"] or (body is None and not described.get("required")):
            return []
        schema = described["content"]["application/json"]["schema"]
        errors = [f"body {e}" for e in self._errors(schema, body, answer=False)]
        # The description lets unknown keys pass; GitHub ignores them, so each is a mistake of ours.
        known = self._resolved(schema).get("properties", {})
        if isinstance(body, dict) and known:
            errors += [f"body has unknown key {k}" for k in body if k not in known]
        return errors

    def _errors(self, schema: dict[str, Any], value: Any, *, answer: bool) -> list[str]:
        validator = OAS30ReadValidator if answer else OAS30WriteValidator
        checked = validator(schema, registry=self._registry, format_checker=oas30_format_checker)
        return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in checked.iter_errors(value)]

    def _resolved(self, node: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in node:
            found = self._document
            for part in node["$ref"].partition("#/")[2].split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            node = found
        return node


def _typed(raw: str, kind: str | None) -> Any:
    if kind == "integer" and re.fullmatch(r"-?\d+", raw):
        return int(raw)
    if kind == "boolean" and raw in ("true", "false"):
        return raw == "true"
    return raw.split(",") if kind == "array" else raw
