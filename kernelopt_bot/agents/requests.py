"""The bodies of requests, as the two interfaces want them."""

from __future__ import annotations

import json
from typing import Any

from kernelopt_bot.agents.dialect import Dialect
from kernelopt_bot.agents.messages import Request
from kernelopt_bot.agents.schema import strict
from kernelopt_bot.agents.settings import RoleModel


def chat(want: RoleModel, request: Request, dialect: Dialect) -> dict[str, Any]:
    """Of Chat Completions."""
    body: dict[str, Any] = {
        "model": want.model, "messages": _messages(request),
        "max_completion_tokens" if dialect.output_limit else "max_tokens": want.max_output_tokens}
    if request.schema is not None and dialect.form != "off":
        closed = strict(request.schema) if dialect.form == "strict" else None
        body["response_format"] = {"type": "json_object"} if dialect.form == "json" else {
            "type": "json_schema", "json_schema": {
                "name": request.name, "strict": closed is not None, "schema": closed or dict(request.schema)}}
    if want.temperature is not None and dialect.temperature:
        body["temperature"] = want.temperature
    if want.effort and dialect.effort:
        body["reasoning_effort"] = want.effort
    return body


def responses(want: RoleModel, request: Request, dialect: Dialect) -> dict[str, Any]:
    """Of the Responses interface."""
    body: dict[str, Any] = {
        "model": want.model, "input": _messages(request),
        "max_output_tokens": want.max_output_tokens}
    if dialect.store:
        body["store"] = False
    if request.schema is not None and dialect.form != "off":
        closed = strict(request.schema) if dialect.form == "strict" else None
        body["text"] = {"format": {"type": "json_object"} if dialect.form == "json" else {
            "type": "json_schema", "name": request.name, "strict": closed is not None,
            "schema": closed or dict(request.schema)}}
    if want.temperature is not None and dialect.temperature:
        body["temperature"] = want.temperature
    if want.effort and dialect.effort:
        body["reasoning"] = {"effort": want.effort}
    return body


def size(request: Request) -> int:
    """Bytes of everything that is billed as input, with some for what servers wrap messages in."""
    schema = len(json.dumps(request.schema).encode()) if request.schema is not None else 0
    return schema + 64 + len(request.system.encode()) + len(request.user.encode())


def _messages(request: Request) -> list[dict[str, str]]:
    return [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
