"""The bodies of requests, as the two interfaces want them."""

from __future__ import annotations

import json
from typing import Any

from kernelopt_bot.agents.dialect import Dialect
from kernelopt_bot.agents.messages import Prompt
from kernelopt_bot.agents.schema import strict
from kernelopt_bot.agents.settings import RoleModel


def chat(want: RoleModel, prompt: Prompt, dialect: Dialect) -> dict[str, Any]:
    """Of Chat Completions."""
    request: dict[str, Any] = {
        "model": want.model, "messages": [{"role": m.role, "content": m.text} for m in prompt.messages],
        "max_completion_tokens" if dialect.output_limit else "max_tokens": want.max_output_tokens}
    if prompt.schema is not None and dialect.form != "off":
        closed = strict(prompt.schema) if dialect.form == "strict" else None
        request["response_format"] = {"type": "json_object"} if dialect.form == "json" else {
            "type": "json_schema", "json_schema": {
                "name": prompt.name, "strict": closed is not None, "schema": closed or dict(prompt.schema)}}
    if want.temperature is not None and dialect.temperature:
        request["temperature"] = want.temperature
    if want.effort and dialect.effort:
        request["reasoning_effort"] = want.effort
    return request


def responses(want: RoleModel, prompt: Prompt, dialect: Dialect) -> dict[str, Any]:
    """Of the Responses interface."""
    request: dict[str, Any] = {
        "model": want.model, "input": [{"role": m.role, "content": m.text} for m in prompt.messages],
        "max_output_tokens": want.max_output_tokens}
    if dialect.store:
        request["store"] = False
    if prompt.schema is not None and dialect.form != "off":
        closed = strict(prompt.schema) if dialect.form == "strict" else None
        request["text"] = {"format": {"type": "json_object"} if dialect.form == "json" else {
            "type": "json_schema", "name": prompt.name, "strict": closed is not None,
            "schema": closed or dict(prompt.schema)}}
    if want.temperature is not None and dialect.temperature:
        request["temperature"] = want.temperature
    if want.effort and dialect.effort:
        request["reasoning"] = {"effort": want.effort}
    return request


def size(prompt: Prompt) -> int:
    """Bytes of everything that is billed as input, with some for what servers wrap messages in."""
    schema = len(json.dumps(prompt.schema).encode()) if prompt.schema is not None else 0
    return schema + 64 + sum(len(m.text.encode()) + 16 for m in prompt.messages)
