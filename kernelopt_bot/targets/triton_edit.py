"""The edit of a user's file that gives a Triton kernel other configurations: only the meant spans of text change.

Under `@triton.autotune` the list of configurations is replaced; entries that stay keep their text. Without it, the one
place of the file that launches the kernel gets other values of `num_warps`, `num_stages` and literal constexprs. The
reason goes into a comment beside it. Works on bytes, so that line ends, tabs and encodings stay as they are.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelopt_bot.contract.body import dotted
from kernelopt_bot.targets.triton_kernels import Found, decoded, imported, kernels

Value = int | float | bool | str
OPTIONS = ("num_warps", "num_stages")


class NotEditable(Exception):
    """Why the file cannot be given another configuration in place."""


@dataclass(frozen=True)
class Settings:
    """A configuration: constexprs by name, and launch options."""

    constexprs: Mapping[str, Value]
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Handle:
    """What of a kernel's launches the file lets us change."""

    kind: str
    """`autotune` or `launch`."""
    constexprs: tuple[str, ...]
    options: tuple[str, ...]
    node: ast.Call
    """The decorator, or the launch."""
    statement: ast.stmt | None = None
    """That holds the launch."""


def handle(tree: ast.Module, kernel: str) -> Handle:
    """Raises NotEditable."""
    found = kernels(tree)[kernel]
    tuner = found.decorators.get("autotune")
    if tuner is not None:
        if not isinstance(tuner, ast.Call) or configs_of(tuner) is None:
            raise NotEditable("@triton.autotune without a list of configurations")
        listed = configs_of(tuner)
        names = sorted({n for c in listed.elts for n in _entry(c)}) if isinstance(listed, ast.List) else []
        if isinstance(listed, ast.List) and any(_special(c) for c in listed.elts):
            raise NotEditable("the autotuner's configurations have hooks or options of their own")
        return Handle("autotune", tuple(names), OPTIONS, tuner)
    launches = list(_launches(tree, kernel))
    if len(launches) != 1:
        raise NotEditable(f"{kernel} is launched in {len(launches)} places of its file: one is needed, or "
                          "@triton.autotune")
    call, statement = launches[0]
    if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        raise NotEditable(f"line {call.lineno}: the launch passes arguments by * or **")
    given = {k.arg: k.value for k in call.keywords if k.arg}
    # A number for a run-time argument, given by name, is a value and no configuration.
    constexprs = {a.arg for a in found.node.args.args if a.annotation and "constexpr" in ast.unparse(a.annotation)}
    names = [n for n, v in given.items() if n in constexprs - _heuristics(found) and _number(v)]
    options = [o for o in OPTIONS if o not in given or _number(given[o])]
    return Handle("launch", tuple(names), tuple(options), call, statement)


def edited(text: bytes, kernel: str, settings: Sequence[Settings], reason: str) -> bytes:
    """The file with these configurations, one without an autotuner. Raises NotEditable."""
    bom, body = body_of(text)
    _must_be_sound(text, settings)
    tree = ast.parse(body)
    place = handle(tree, kernel)
    file = _File(body)
    made = (_tuned(file, tree, place, settings, reason) if place.kind == "autotune"
            else _launched(file, place, settings, reason))
    _same_but(tree, made, kernel)
    _must_say(ast.parse(made), kernel, settings)
    return bom + made


def body_of(text: bytes) -> tuple[bytes, bytes]:
    """A file's byte order mark, if it has one, and the rest."""
    bom = b"\xef\xbb\xbf" if text.startswith(b"\xef\xbb\xbf") else b""
    return bom, text[len(bom):]


def must_be_utf8(text: bytes) -> None:
    """Positions in a syntax tree count the bytes of UTF-8, whatever the file is written in. Raises NotEditable."""
    try:
        same = decoded(text) == text.decode("utf-8-sig")
    except (UnicodeDecodeError, SyntaxError):
        same = False
    if not same:
        raise NotEditable("the file is not in UTF-8")


def _must_be_sound(text: bytes, settings: Sequence[Settings]) -> None:
    """Values come from what a worker said, and become text of the file. Raises NotEditable."""
    must_be_utf8(text)
    for one in settings:
        _must_be_plain(one)


def _must_be_plain(one: Settings) -> None:
    for name, value in {**one.constexprs, "num_warps": one.num_warps, "num_stages": one.num_stages}.items():
        plain = type(value) in (int, bool, str) or (type(value) is float and math.isfinite(value))
        if name in OPTIONS:
            plain = type(value) is int
        if not plain or not (isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)):
            raise NotEditable(f"{name!r} cannot be given the value {value!r} in a file")


class _File:
    """A file's bytes by the positions of its syntax tree."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.starts = [0, *(m.end() for m in re.finditer(rb"\r\n|\r|\n", body))]
        self.newline = b"\r\n" if b"\r\n" in body else b"\n"

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return self.at(line, column), self.at(getattr(node, "end_lineno", line), getattr(node, "end_col_offset", 0))

    def text(self, node: ast.AST) -> bytes:
        begin, end = self.span(node)
        return self.body[begin:end]

    def indent(self, line: int) -> bytes:
        """The white space that a line begins with."""
        found = re.match(rb"[ \t]*", self.body[self.starts[line - 1]:])
        return found.group() if found else b""

    def replaced(self, changes: Sequence[tuple[int, int, bytes]]) -> bytes:
        body = self.body
        for begin, end, new in sorted(changes, reverse=True):
            body = body[:begin] + new + body[end:]
        return body


def _tuned(file: _File, tree: ast.Module, place: Handle, settings: Sequence[Settings], reason: str) -> bytes:
    listed = configs_of(place.node)
    assert listed is not None
    old = listed.elts if isinstance(listed, ast.List) else []
    texts = {_key(settings_of(e)): file.text(e) for e in old}
    spelled = _config_name(tree, place.node)
    margin = file.indent(place.node.lineno)
    inner = margin + (b"\t" if margin.startswith(b"\t") else b"    ")
    deeper = inner + (b"\t" if margin.startswith(b"\t") else b"    ")
    lines = [b"[", *(deeper + b"# " + line for line in _comment(reason))]
    for one in settings:
        new = f"{spelled}({_dict(one.constexprs)}, num_warps={one.num_warps}, num_stages={one.num_stages})".encode()
        lines.append(deeper + texts.get(_key(one), new) + b",")
    lines.append(inner + b"]")
    return file.replaced([(*file.span(listed), file.newline.join(lines))])


def _launched(file: _File, place: Handle, settings: Sequence[Settings], reason: str) -> bytes:
    if len(settings) != 1:
        raise NotEditable("without @triton.autotune there can be one configuration only")
    call, one = place.node, settings[0]
    given = {k.arg: k.value for k in call.keywords if k.arg}
    changes: list[tuple[int, int, bytes]] = []
    added = ""
    for name, value in {**one.constexprs, "num_warps": one.num_warps, "num_stages": one.num_stages}.items():
        if name in given:
            if _number(given[name]) and ast.literal_eval(given[name]) != value:
                changes.append((*file.span(given[name]), repr(value).encode()))
        elif name in OPTIONS and value != {"num_warps": 4, "num_stages": 3}[name]:
            added += f", {name}={value}"
    if added:
        last = max([*call.args, *(k.value for k in call.keywords)], key=lambda n: file.span(n)[1], default=None)
        if last is None:
            raise NotEditable(f"line {call.lineno}: the launch has no arguments")
        end = file.span(last)[1]
        # Behind parentheses that close before the call's own comma or end.
        while (close := re.match(rb"[ \t]*\)", file.body[end:])) and end + close.end() < file.span(call)[1]:
            end += close.end()
        changes.append((end, end, added.encode()))
    if changes:
        assert place.statement is not None
        line = place.statement.lineno
        margin = file.indent(line)
        words = b"".join(margin + b"# " + text + file.newline for text in _comment(reason))
        changes.append((file.starts[line - 1], file.starts[line - 1], words))
    return file.replaced(changes)


def _comment(reason: str, width: int = 100) -> list[bytes]:
    lines, line = [], ""
    for word in "".join(c if c.isprintable() else " " for c in reason[:1000]).split():
        if line and len(line) + len(word) + 1 > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [text.encode("ascii", "replace") for text in [*lines, line] if text]


def _same_but(before: ast.Module, after: bytes, kernel: str) -> None:
    """Raises NotEditable where more changed than what `handle` names: a comment in the wrong place, say."""
    try:
        new = ast.parse(after)
        blanked = [_blank(before, kernel), _blank(new, kernel)]
    except (SyntaxError, NotEditable, KeyError) as e:
        raise NotEditable(f"the edited file does not parse as it should: {e}") from e
    if blanked[0] != blanked[1]:
        raise NotEditable("the edit would change more than the kernel's configuration")


def _must_say(new: ast.Module, kernel: str, settings: Sequence[Settings]) -> None:
    """Raises NotEditable where the one thing that changed says something else than `settings`."""
    place = handle(new, kernel)
    if place.kind == "autotune":
        listed = configs_of(place.node)
        said = [_key(settings_of(e)) for e in listed.elts] if isinstance(listed, ast.List) else []
        right = said == [_key(one) for one in settings]
    else:
        given = {k.arg: ast.literal_eval(k.value) for k in place.node.keywords
                 if k.arg in (*place.constexprs, *place.options)}
        wanted = {**settings[0].constexprs, "num_warps": settings[0].num_warps, "num_stages": settings[0].num_stages}
        right = all(given[name] == wanted[name] for name in given.keys() & wanted.keys())
    if not right:
        raise NotEditable("the edit would say something else than it should")


def _blank(tree: ast.Module, kernel: str) -> str:
    """The tree with what may change taken out."""
    place = handle(tree, kernel)
    if place.kind == "autotune":
        node = configs_of(place.node)
        assert node is not None
        kept = [(ast.Constant(0) if a is node else a) for a in place.node.args]
        keywords = [ast.keyword(k.arg, ast.Constant(0) if k.value is node else k.value) for k in place.node.keywords]
    else:
        kept = place.node.args
        changing = {*place.constexprs, *place.options}
        keywords = [ast.keyword(k.arg, ast.Constant(0) if k.arg in changing else k.value)
                    for k in place.node.keywords if k.arg not in OPTIONS or k.arg not in changing]
    old = place.node.args, place.node.keywords
    place.node.args, place.node.keywords = kept, keywords
    try:
        return ast.dump(tree)
    finally:
        place.node.args, place.node.keywords = old


def _launches(tree: ast.Module, kernel: str) -> Iterator[tuple[ast.Call, ast.stmt]]:
    """Calls of `kernel[...](...)` with the innermost statement that holds each."""
    stack: list[tuple[ast.AST, ast.stmt | None]] = [(tree, None)]
    while stack:
        node, statement = stack.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and isinstance(
                node.func.value, ast.Name) and node.func.value.id == kernel and statement is not None:
            yield node, statement
        here = node if isinstance(node, ast.stmt) else statement
        stack += [(child, here) for child in ast.iter_child_nodes(node)]


def configs_of(tuner: ast.Call) -> ast.expr | None:
    """What the autotuner gets as its configurations."""
    found = next((k.value for k in tuner.keywords if k.arg == "configs"), None)
    return found if found is not None else (tuner.args[0] if tuner.args else None)


def _entry(node: ast.expr) -> dict[str, ast.expr]:
    """Constexprs of a `triton.Config(...)`."""
    values = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if not isinstance(values, ast.Dict):
        return {}
    return {k.value: v for k, v in zip(values.keys, values.values, strict=True)
            if isinstance(k, ast.Constant) and isinstance(k.value, str)}


def settings_of(node: ast.expr) -> Settings | None:
    """What an entry of the list says, where it is plain."""
    if not isinstance(node, ast.Call) or len(node.args) != 1 or not isinstance(node.args[0], ast.Dict):
        return None
    options = {k.arg: k.value for k in node.keywords}
    if set(options) - set(OPTIONS):
        return None
    try:
        found = Settings(ast.literal_eval(node.args[0]), ast.literal_eval(options.get("num_warps", ast.Constant(4))),
                         ast.literal_eval(options.get("num_stages", ast.Constant(3))))
        _must_be_plain(found)
    except (ValueError, TypeError, NotEditable):
        return None
    return found


def _special(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool({k.arg for k in node.keywords} - set(OPTIONS) - {"kwargs"})


def _key(one: Settings | None) -> object:
    return None if one is None else (tuple(sorted(one.constexprs.items())), one.num_warps, one.num_stages)


def _config_name(tree: ast.Module, tuner: ast.Call) -> str:
    """How the file calls `triton.Config`."""
    names = imported(tree)
    known = next((n for n, full in names.items() if full in ("triton.Config", "triton.runtime.Config")), "")
    root = dotted(tuner.func).rpartition(".")[0]
    if known or root:
        return known or f"{root}.Config"
    triton = next((n for n, full in names.items() if full == "triton"), "")
    if not triton:
        raise NotEditable("the file has no name for triton.Config")
    return f"{triton}.Config"


def _heuristics(found: Found) -> set[str]:
    """Constexprs that `@triton.heuristics` sets."""
    node = found.decorators.get("heuristics")
    if node is None:
        return set()
    given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
    values = given[0] if given else None
    if not isinstance(values, ast.Dict):
        return {a.arg for a in found.node.args.args}
    return {k.value for k in values.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _dict(values: Mapping[str, Value]) -> str:
    return "{" + ", ".join(f'"{k}": {v!r}' for k, v in values.items()) + "}"
