"""Hostile candidates for the fuzzer: real sources and plans, mutated. Every choice comes from the given `Random`."""

from __future__ import annotations

import ast
import copy
import tokenize
from collections.abc import Callable, Mapping
from io import StringIO
from random import Random
from typing import Any

from tests.compiler.candidates import COLUMN_SUM, LAYER_NORM, column_sum_plan, layer_norm_plan
from tests.contract.sources import ESCAPES, GOOD, HEADER, body

GOOD_PLAN: Mapping[str, Any] = {
    "parameters": [{"name": "in_ptr0", "type": "*fp32", "written": False, "read": True, "divisible": True},
                   {"name": "out_ptr0", "type": "*fp32", "written": True, "read": False, "divisible": True},
                   {"name": "xnumel", "type": "i32", "written": False, "read": True, "divisible": True}],
    "launches": [{"function": "scale", "grid": ["cdiv(xnumel, 128)"], "arguments": ["in_ptr0", "out_ptr0", "xnumel"],
                  "constexprs": {"XBLOCK": 128}, "num_warps": 4, "num_stages": 1, "num_ctas": 1, "maxnreg": None}],
    "scratch": []}

CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (GOOD, GOOD_PLAN), (LAYER_NORM, layer_norm_plan()), (COLUMN_SUM, column_sum_plan()))
"""Sources with the plans that fit them."""

SNIPPETS = (
    "open('PWNED', 'w')", "__import__('os').system('touch PWNED')", "exec('x = 1')", "eval('1')", "lambda: 0",
    "[i for i in (1, 2)]", "tl.core.builtins", "().__class__.__base__", "f'{n}'", "(y := 1)", "9 ** 9 ** 9",
    "'x' * 999999999", "getattr(tl, 'core')", "tl.store(*o)", "tl.load(x_ptr + o)", "...", "1j", "b'x'", "{1: 2}",
    "breakpoint()", "globals()", "tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)", "await o")
"""Expressions that no candidate may hold, and a few that some may."""

STATEMENTS = ("import os", "from os import system as tl", "del tl", "global x", "raise n", "class A:\n    pass",
              "with open('PWNED', 'w'):\n    pass", "try:\n    pass\nfinally:\n    pass", "async def f():\n    pass",
              "def g(x=open('PWNED', 'w')):\n    pass", "x: open('PWNED', 'w') = 1", "return open('PWNED', 'w')")

TEXTS = ("\0", "\r", "\f", "\t", "\u202e", "\ud800", "\uff58", "\x85", "\u2028", "\ufeff", "'''", '"""', "\\\n", "#",
         "# coding: utf-7\n", ";", "\n", "(", ")", "[", "{", ":", "@", "`", "$", "0x" + "f" * 5000, "9" * 5000, "1e999",
         "1_0", "0b2", "x" * 70_000)

DEEP: Mapping[str, Callable[[int], str]] = {
    "parentheses": lambda n: "(" * n + "1" + ")" * n,
    "open parentheses": lambda n: "(" * n,
    "open brackets": lambda n: "[" * n,
    "open braces": lambda n: "{a:" * n,
    "calls": lambda n: "f(" * n + ")" * n,
    "open calls": lambda n: "f(**" * n,
    "minus signs": lambda n: "-" * n + "1",
    "nots": lambda n: "not " * n + "1",
    "powers": lambda n: "1**" * n + "1",
    "sums": lambda n: "1" + "+1" * n,
    "attributes": lambda n: "o" + ".a" * n,
    "subscripts": lambda n: "o" + "[0]" * n,
    "call chains": lambda n: "o" + "()" * n,
    "comparisons": lambda n: "1" + "<1" * n,
    "conditions": lambda n: "1 if 1 else " * n + "1",
    "lambdas": lambda n: "lambda:" * n + "1",
    "commas": lambda n: "1," * n,
    "stars": lambda n: "*" * n + "a",
    "strings": lambda n: "'a' " * n,
    "f-strings": lambda n: "f'{" * n,
}
"""Texts of an expression nested (or as long as) the given number."""


def deep_sources(n: int) -> dict[str, str]:
    """A candidate for each kind of nesting."""
    found = {name: body(f"y = {make(n)}") for name, make in DEEP.items()}
    found |= {f"{name} at module level": HEADER + f"X = {make(n)}\n" for name, make in DEEP.items()}
    found["branches"] = body("if n:", "    pass", *(["elif n:", "    pass"] * n))
    found["blocks"] = HEADER + "@triton.jit\ndef k(n):\n" + "\n".join(" " * (i + 1) + "if n:" for i in range(n))
    found["decorators"] = HEADER + "@triton.jit\n" * n + "def k(n):\n    pass\n"
    found["functions"] = HEADER + "".join(f"@triton.jit\ndef k{i}(n):\n    pass\n" for i in range(n))
    found["parameters"] = body(parameters=", ".join(f"a{i}" for i in range(n)) + ", BLOCK: tl.constexpr")
    found["assignments"] = body("y = " * n + "1")
    found["statements"] = body("; ".join(["y = 1"] * n))
    found["semicolons"] = body(";" * n)
    found["parameter annotations"] = body(parameters=f"a: {'[' * n}1{']' * n}, BLOCK: tl.constexpr")
    return found


def chained(functions: int, depth: int) -> str:
    """Conforming functions, each calling the next one inside a nested expression."""
    nested = ["o + 1" if i == functions - 1 else f"k{i + 1}(o)" for i in range(functions)]
    return HEADER + "".join(f"@triton.jit\ndef k{i}(o):\n    return {'-' * depth}{inner}\n"
                            for i, inner in reversed(list(enumerate(nested))))


def reversed_copies(n: int) -> str:
    """A pointer that moves one assignment further in each pass over the body: quadratic for a naive fixpoint."""
    lines = [f"v{i} = v{i + 1}" for i in range(n)]
    return body("v0 = x_ptr", *lines, f"v{n} = x_ptr", "tl.store(v0, 1)")


def source(random: Random) -> tuple[str, Mapping[str, Any]]:
    """A mutated source, with the plan that belonged to it."""
    text, plan = random.choice(CANDIDATES)
    if random.random() < 0.2:
        text = random.choice(list(ESCAPES.values()))
    for _ in range(random.randint(1, 4)):
        text = random.choice((_tokens, _expression, _statement, _characters, _cut, _nest))(random, text)
    return text, plan


def _tokens(random: Random, text: str) -> str:
    """Two tokens exchanged, or one doubled or taken out."""
    if "\0" in text:
        return _cut(random, text)
    try:
        tokens = [t for t in tokenize.generate_tokens(StringIO(text).readline) if t.string.strip()]
    except (SyntaxError, tokenize.TokenError, IndentationError, UnicodeError, MemoryError):
        return _cut(random, text)
    if len(tokens) < 2:
        return text
    a, b = sorted(random.sample(range(len(tokens)), 2))
    first, second = random.choice(((tokens[b].string, tokens[a].string), (tokens[a].string * 2, tokens[b].string),
                                   ("", tokens[b].string), (tokens[b].string, "")))
    lines = text.splitlines(keepends=True)
    for token, new in ((tokens[b], second), (tokens[a], first)):
        (row, start), (last, end) = token.start, token.end
        if row == last and row <= len(lines):
            lines[row - 1] = lines[row - 1][:start] + new + lines[row - 1][end:]
    return "".join(lines)


def _parsed(text: str) -> ast.Module | None:
    if len(text) > 20_000:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _unparsed(tree: ast.Module, text: str) -> str:
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    except (RecursionError, ValueError):
        return text


class _Put(ast.NodeTransformer):
    def __init__(self, at: int, new: ast.expr) -> None:
        self.left, self.new = at, new

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            self.left -= 1
            if self.left == 0:
                return self.new
        return super().generic_visit(node)


def _expression(random: Random, text: str) -> str:
    """A hostile expression in the place of any other: annotations, defaults, decorators and targets included."""
    tree = _parsed(text)
    if tree is None:
        return text
    places = sum(isinstance(n, ast.expr) for n in ast.walk(tree))
    if not places:
        return text
    new = ast.parse(random.choice(SNIPPETS), mode="eval").body
    try:
        return _unparsed(_Put(random.randint(1, places), new).visit(tree), text)
    except RecursionError:
        return text


def _statement(random: Random, text: str) -> str:
    tree = _parsed(text)
    if tree is None:
        return text
    blocks = [b for n in ast.walk(tree) for b in (getattr(n, "body", None), getattr(n, "orelse", None))
              if isinstance(b, list)]
    block = random.choice(blocks)
    block[random.randint(0, len(block)):0] = ast.parse(random.choice(STATEMENTS)).body
    return _unparsed(tree, text)


def _characters(random: Random, text: str) -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(TEXTS) + text[at:]


def _cut(random: Random, text: str) -> str:
    at = random.randint(0, len(text))
    return text[:at] if random.random() < 0.5 else text[at:]


def _nest(random: Random, text: str) -> str:
    lines = text.split("\n")
    made = random.choice(list(DEEP.values()))(random.choice((3, 90, 300, 3000)))
    lines.insert(random.randint(0, len(lines)), "    " * random.randint(0, 1) + f"y = {made}")
    return "\n".join(lines)


def value(random: Random, depth: int = 3) -> Any:
    """Anything that JSON can hold, and integers longer than Python prints."""
    leaves: tuple[Any, ...] = (
        None, True, False, 0, 1, -1, 2**31, 2**63, -2**63, 10**5000, 0.5, float("nan"), float("inf"), "", "x", "i32",
        "*fp32", "xnumel", "1", "0", "-1", "1 // 0", "2**99", "9" * 990, "(" * 500, "1" + "+1" * 499, "num_sms",
        "\ud800", "\0", "a\nimport os", "__import__('os')", "x" * 5000, "constexpr", "float32", "scale")
    if depth and random.random() < 0.3:
        size = random.randint(0, 3)
        if random.random() < 0.5:
            return [value(random, depth - 1) for _ in range(size)]
        return {str(random.choice(leaves[13:])): value(random, depth - 1) for _ in range(size)}
    if random.random() < 0.03:
        nested: Any = []
        for _ in range(random.choice((50, 900))):
            nested = [nested]
        return nested
    return random.choice(leaves)


def plan(random: Random, base: Mapping[str, Any]) -> Any:
    """The plan with some values replaced, keys added and taken away; now and then something else altogether."""
    if random.random() < 0.05:
        return value(random)
    made = copy.deepcopy(dict(base))
    for _ in range(random.randint(1, 3)):
        holder: Any = made
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = random.choice(keys)
            if isinstance(holder[key], dict | list) and random.random() < 0.8:
                holder = holder[key]
                continue
            action = random.random()
            if action < 0.1:
                del holder[key]
            elif action < 0.2 and isinstance(holder, list):
                holder += [copy.deepcopy(holder[key])] * random.choice((1, 40))
            elif action < 0.2:
                holder[random.choice(("num_ctas", "name", "\ud800", "x", ""))] = value(random)
            else:
                holder[key] = value(random)
            break
    return made
