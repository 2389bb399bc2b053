"""The float64 reference of a kernel: its own source with every floating type replaced by float64.

Loads, casts, constants and accumulators all become float64, so what the promoted kernel computes is the mathematics
that the source spells out; the baseline's rounding, of literals too, is then an error like the candidate's.
"""

from __future__ import annotations

import ast

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
SIGNATURE = {"fp16": "fp64", "bf16": "fp64", "fp32": "fp64", "fp64": "fp64"}
_RANDOM = ("rand", "philox")


class CannotPromote(Exception):
    """The source depends on the width of its floating types; the message says where."""


class _Promoter(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "tl":
            if node.attr.startswith("float8"):
                raise CannotPromote(f"line {node.lineno}: {node.attr} values")
            if node.attr in FLOATS:
                return ast.copy_location(ast.Attribute(node.value, "float64", node.ctx), node)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            stars = node.value[: len(node.value) - len(node.value.lstrip("*"))]
            name = node.value[len(stars):]
            if stars and name.startswith("fp8"):
                raise CannotPromote("float8 arguments")
            if name in SIGNATURE:
                return ast.copy_location(ast.Constant(stars + SIGNATURE[name]), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        at = f"line {node.lineno}: {name}"
        bitcast = next((k.value for k in node.keywords if k.arg == "bitcast"), None)
        if bitcast is not None and not (isinstance(bitcast, ast.Constant) and bitcast.value is False):
            raise CannotPromote(f"{at} reads the bits of a floating value")
        if name == "to" and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
            raise CannotPromote(f"{at} may read the bits of a floating value")
        if name.startswith(_RANDOM) or "rand" in name:
            raise CannotPromote(f"{at} draws random numbers")
        if name in ("dot", "dot_scaled"):
            raise CannotPromote(f"{at} has no float64 form on every GPU")
        if name in ("inline_asm_elementwise", "extern_elementwise") or name.startswith("fast_"):
            raise CannotPromote(f"{at} exists for one width only")
        inner = self.generic_visit(node)
        assert isinstance(inner, ast.Call)
        if name == "div_rn" and len(inner.args) == 2:
            return ast.copy_location(ast.BinOp(inner.args[0], ast.Div(), inner.args[1]), node)
        if name == "sqrt_rn" and isinstance(inner.func, ast.Attribute):
            # exists in float32 only; a float64 root is rounded to nearest anyway
            inner.func.attr = "sqrt"
        return inner


def promote(source: str) -> str:
    """A generated kernel's source in float64. Raises CannotPromote."""
    tree = _Promoter().visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
