"""`kernelopt config`: the effective configuration and where each value comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kernelopt_bot import config_reference
from kernelopt_bot.config import Traced, json_schema, load_traced


@click.command("config")
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("."),
              show_default=True, help="Folder that holds .kernelopt.yml.")
@click.option("--json", "as_json", is_flag=True, help="Print [{key, value, origin}] as JSON.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file instead.")
@click.option("--reference", is_flag=True, help="Print the reference of all keys as Markdown instead.")
def command(root: Path, as_json: bool, schema: bool, reference: bool) -> None:
    """Print the effective configuration, each value with its origin."""
    if schema:
        click.echo(json.dumps(json_schema(), indent=2))
        return
    if reference:
        click.echo(config_reference.markdown(), nl=False)
        return
    rows = list(effective(load_traced(root)))
    if as_json:
        click.echo(json.dumps([{"key": k, "value": v, "origin": o} for k, v, o in rows], indent=2))
        return
    left = max(len(key) for key, _, _ in rows)
    middle = max(len(json.dumps(value)) for _, value, _ in rows)
    for key, value, origin in rows:
        click.echo(f"{key:<{left}}  {json.dumps(value):<{middle}}  {origin}")


def effective(traced: Traced) -> Iterator[tuple[str, Any, str]]:
    """(dotted key, value as JSON, origin) of every leaf, in the order of the model."""
    yield from _leaves(traced.config.model_dump(mode="json"), (), traced)


def _leaves(value: Any, path: tuple[str | int, ...], traced: Traced) -> Iterator[tuple[str, Any, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key), traced)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index), traced)
    else:
        dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        yield dotted, value, traced.origin(path)
