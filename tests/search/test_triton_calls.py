"""What a worker says of recorded launches: the user's code speaks through it, and may say anything."""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.compiler.plain_triton import PlainKernel, Unfit, plain_kernel
from kernelopt_bot.gates.answers import Malformed
from kernelopt_bot.sandbox.worker.record_launches import MOST_DISTINCT
from kernelopt_bot.search import triton_lever
from kernelopt_bot.search.triton_calls import MOST_LAUNCHES, TritonConfig, settings_of
from kernelopt_bot.search.triton_lever import cases_of, own
from kernelopt_bot.targets.triton_edit import NotEditable, handle
from kernelopt_bot.targets.triton_kernels import imported

TREE = ast.parse((Path(__file__).parents[2] / "examples" / "triton" / "rms_norm.py").read_text())
PLAIN: PlainKernel = plain_kernel(TREE, "rms_norm_kernel", imported(TREE))
DEEP: Any = []
for _ in range(5000):
    DEEP = [DEEP]


def tensor(*shape: int) -> dict[str, Any]:
    stride = [math.prod(shape[n + 1:]) for n in range(len(shape))]
    meta = {"dtype": "float32", "shape": list(shape), "stride": stride, "offset": 0, "device": "cpu"}
    return {"tensor": meta, "storage": "storage0", "aligned": True, "stats": None, "saved": None}


CALL: dict[str, Any] = {
    "arguments": {"x_ptr": tensor(4, 64), "weight_ptr": tensor(64), "out_ptr": tensor(4, 64), "n_cols": {"value": 64},
                  "eps": {"value": 1e-6}},
    "constexprs": {"BLOCK": 256}, "grid": [4], "callable_grid": False, "options": {"num_warps": 4, "num_stages": 3},
    "count": 1}
CONFIG: dict[str, Any] = {"constexprs": {"BLOCK": 256}, "num_warps": 4, "num_stages": 3, "special": False}


def said(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    call = copy.deepcopy(CALL)
    change(call)
    return call


def test_an_honest_answer_is_taken() -> None:
    (case,) = cases_of({"calls": [CALL]}, PLAIN, 90, 132)
    assert case.covered == ("x_ptr: (4, 64) float32, weight_ptr: (64,) float32, out_ptr: (4, 64) float32, n_cols=64, "
                            "eps=1e-06")
    assert MOST_LAUNCHES == MOST_DISTINCT


@pytest.mark.parametrize("key, value", [
    ("count", 0), ("count", -3), ("count", 2 ** 200), ("count", math.inf), ("count", math.nan), ("count", True),
    ("count", "7"), ("count", 1.5), ("grid", [-1]), ("grid", [2 ** 40]), ("grid", [math.inf]), ("grid", ["abort()"]),
    ("grid", [True]), ("grid", 4), ("grid", [DEEP]), ("options", {"num_warps": math.inf, "num_stages": 3}),
    ("options", {"num_warps": 10 ** 30, "num_stages": 3}), ("options", None), ("constexprs", {"BLOCK": 256, "more": 1}),
    ("constexprs", {}), ("constexprs", DEEP), ("arguments", DEEP), ("arguments", None),
])
def test_figures_that_are_none_are_malformed(key: str, value: object) -> None:
    with pytest.raises(Malformed) as raised:
        cases_of({"calls": [{**CALL, key: value}]}, PLAIN, 90, 132)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("key, value", [
    ("shape", ["4", "`x`\n# forged"]), ("shape", [4]), ("shape", [-4, 64]), ("shape", [2 ** 60, 64]), ("shape", DEEP),
    ("shape", [1] * 100_000), ("stride", [math.nan, 1]), ("stride", None), ("dtype", ["float32"]), ("dtype", None),
])
def test_no_shape_is_printed_that_is_none(key: str, value: object) -> None:
    call = said(lambda c: c["arguments"]["x_ptr"]["tensor"].update({key: value}))
    with pytest.raises((Malformed, Unfit)) as raised:
        cases_of({"calls": [call]}, PLAIN, 90, 132)
    assert "forged" not in str(raised.value) and len(str(raised.value)) < 400


@pytest.mark.parametrize("name, value, error", [
    ("eps", "abort()", Malformed), ("eps", None, Malformed), ("eps", DEEP, Malformed), ("eps", {"x": 1}, Malformed),
    ("eps", math.nan, Unfit), ("eps", math.inf, Unfit), ("n_cols", 2 ** 63, Unfit), ("n_cols", -2 ** 64, Unfit),
    ("n_cols", 2 ** 200, Unfit), ("x_ptr", 7, Unfit),
])
def test_values_that_no_launch_has(name: str, value: object, error: type[Exception]) -> None:
    call = said(lambda c: c["arguments"].update({name: {"value": value}}))
    with pytest.raises((Malformed, Unfit)) as raised:
        cases_of({"calls": [call]}, PLAIN, 90, 132)
    assert isinstance(raised.value, error) and len(str(raised.value)) < 400


@pytest.mark.parametrize("value", ["__import__('os')", "a b", "x" * 65, 2 ** 63, math.inf, None, [256], {"a": 1}])
def test_a_constexpr_is_a_short_word_or_a_number(value: object) -> None:
    with pytest.raises((Malformed, Unfit)):
        cases_of({"calls": [{**CALL, "constexprs": {"BLOCK": value}}]}, PLAIN, 90, 132)
    with pytest.raises((Malformed, Unfit)):
        settings_of({**CONFIG, "constexprs": {"BLOCK": value}}, PLAIN)


@pytest.mark.parametrize("calls", [[], [CALL] * (MOST_LAUNCHES + 1), DEEP, "calls", {}])
def test_as_many_launches_as_a_worker_may_record(calls: object) -> None:
    with pytest.raises(Malformed):
        cases_of({"calls": calls}, PLAIN, 90, 132)


@pytest.mark.parametrize("config, error, words", [
    ({**CONFIG, "constexprs": {'B": 2}), abort(), triton.Config({"B': 2}}, Unfit, "no tl.constexpr of the kernel"),
    ({**CONFIG, "constexprs": {"n_cols": 64}}, Unfit, "'n_cols', which is no tl.constexpr"),
    ({**CONFIG, "constexprs": [["BLOCK", 2]]}, Malformed, "constexprs"),
    ({**CONFIG, "num_warps": "4"}, Malformed, "num_warps"),
    ({**CONFIG, "num_stages": 10 ** 30}, Malformed, "num_stages"), ({**CONFIG, "special": None}, Malformed, "special"),
    ({**CONFIG, "special": True}, NotEditable, "hooks or options of their own"), (None, Malformed, "special"),
    ({}, Malformed, "special"),
])
def test_an_autotuners_list_is_not_believed(config: Any, error: type[Exception], words: str) -> None:
    place = handle(TREE, "rms_norm_kernel")
    with pytest.raises(error, match=words):
        own({"configs": [config]}, place, (), PLAIN)
    assert own({"configs": [CONFIG]}, place, (), PLAIN) == [TritonConfig.of({"BLOCK": 256}, 4, 3)]


@pytest.mark.parametrize("launched", [
    {"grid": [4], "constexprs": {"BLOCK": 512, "eps": 0.5}}, {"grid": [4], "constexprs": {"BLOCK": 512, "more": 1}},
    {"grid": [4], "constexprs": {}}, {"grid": ["num_sms"], "constexprs": {"BLOCK": 512}},
    {"grid": [2 ** 40], "constexprs": {"BLOCK": 512}}, {"grid": "4", "constexprs": {"BLOCK": 512}}, {"grid": [4]}, None,
])
def test_a_grid_under_another_configuration_is_not_believed(launched: Any) -> None:
    (case,) = cases_of({"calls": [CALL]}, PLAIN, 90, 132)
    config = TritonConfig.of({"BLOCK": 512}, 4, 3)
    with pytest.raises(Malformed), triton_lever.understood():
        case.planned(config, launched, PLAIN)
    plan = case.planned(config, {"grid": [4], "constexprs": {"BLOCK": 512}}, PLAIN)
    assert plan.launches[0].constexprs == {"BLOCK": 512, "eps": 1e-6} and plan.launches[0].grid == ("4",)
