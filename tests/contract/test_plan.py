import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelopt_bot.contract import plan as contract
from kernelopt_bot.contract.candidate import Launch, Parameter, Plan, Scratch
from tests.contract.sources import GOOD, body

PARAMETERS = (
    Parameter("in_ptr0", "*fp32"), Parameter("out_ptr0", "*fp32", written=True, read=False), Parameter("xnumel", "i32"))
LAUNCH = Launch("scale", ("cdiv(xnumel, 128)",), ("in_ptr0", "out_ptr0", "xnumel"), {"XBLOCK": 128})
PLAN = Plan(PARAMETERS, (LAUNCH,))
INTEGERS = {"xnumel": 1000, "num_sms": 132}


def rules(plan: Plan, text: str = GOOD, **kwargs: Any) -> set[str]:
    return {v.rule for v in contract.check(plan, text, integers=INTEGERS, **kwargs)}


def launch(**changes: Any) -> Plan:
    return dataclasses.replace(PLAN, launches=(dataclasses.replace(LAUNCH, **changes),))


def parameters(*given: Parameter) -> Plan:
    return dataclasses.replace(PLAN, parameters=given)


def test_good_plan_passes() -> None:
    assert contract.check(PLAN, GOOD, integers=INTEGERS) == []
    assert contract.check(PLAN, GOOD) == []


def test_survives_json() -> None:
    assert contract.check(Plan.from_json(PLAN.to_json()), GOOD, integers=INTEGERS) == []


def test_violations_of_the_source_come_first() -> None:
    assert rules(PLAN, "import os\n" + GOOD) == {"import"}


@pytest.mark.parametrize("plan", [
    launch(function="nothing"),
    launch(grid=()),
    launch(grid=("1", "1", "1", "1")),
    launch(grid=("xnumel - 2000",)),
    launch(grid=("0",)),
    launch(grid=("1", "65536")),
    launch(grid=("unknown",)),
    launch(grid=("__import__('os').getpid()",)),
    launch(grid=("xnumel.real",)),
    launch(grid=("xnumel // 0",)),
    launch(grid=("9223372036854775807 * 2",)),
    launch(grid=(1,)),
    launch(arguments=("in_ptr0", "out_ptr0")),
    launch(arguments=("in_ptr0", "out_ptr0", "nothing")),
    launch(arguments=("in_ptr0", "out_ptr0", "open('x')")),
    launch(arguments=("in_ptr0", "out_ptr0", ["xnumel"])),
    launch(constexprs={}),
    launch(constexprs={"XBLOCK": 128, "OTHER": 1}),
    launch(constexprs={"XBLOCK": float("nan")}),
    launch(constexprs={"XBLOCK": 2**70}),
    launch(constexprs={"XBLOCK": "a b"}),
    launch(constexprs={"XBLOCK": [1]}),
    launch(num_warps=3),
    launch(num_warps=64),
    launch(num_warps=True),
    launch(num_warps="4"),
    launch(num_stages=0),
    launch(num_stages=9),
    launch(num_ctas=3),
    launch(maxnreg=8),
    launch(maxnreg=256),
    dataclasses.replace(PLAN, launches=()),
    dataclasses.replace(PLAN, launches=(LAUNCH,) * 17),
    parameters(*PARAMETERS, PARAMETERS[0]),
    parameters(Parameter("in ptr", "*fp32"), *PARAMETERS[1:]),
    parameters(Parameter("__class__", "*fp32"), *PARAMETERS[1:]),
    parameters(Parameter("num_sms", "i32"), *PARAMETERS),
    parameters(Parameter("in_ptr0", "*float"), *PARAMETERS[1:]),
    parameters(Parameter("in_ptr0", "**fp32"), *PARAMETERS[1:]),
    parameters(Parameter("in_ptr0", "fp32", written=True), *PARAMETERS[1:]),
    parameters(dataclasses.replace(PARAMETERS[0], read="yes"), *PARAMETERS[1:]),  # type: ignore[arg-type]
    parameters(dataclasses.replace(PARAMETERS[0], name=None), *PARAMETERS[1:]),  # type: ignore[arg-type]
    dataclasses.replace(PLAN, scratch=(Scratch("in_ptr0", "1", "float32"),)),
    dataclasses.replace(PLAN, scratch=(Scratch("s", "0", "float32"),)),
    dataclasses.replace(PLAN, scratch=(Scratch("s", "0 - 1", "float32"),)),
    dataclasses.replace(PLAN, scratch=(Scratch("s", "1", "quaternion"),)),
    dataclasses.replace(PLAN, scratch=(Scratch("s", "xnumel * 4000000", "float32"),)),
    dataclasses.replace(PLAN, scratch=tuple(Scratch(f"s{i}", "200000000", "float32") for i in range(3))),
    dataclasses.replace(PLAN, scratch=(Scratch("s", "1", "float32", zeroed=1),)),  # type: ignore[arg-type]
])
def test_bad_plans(plan: Plan) -> None:
    assert rules(plan) & {"plan", "expression"}


def test_a_store_to_a_buffer_that_is_only_read() -> None:
    swapped = launch(arguments=("out_ptr0", "in_ptr0", "xnumel"))
    assert {"store", "uninitialised"} <= rules(swapped)


def test_every_written_buffer_is_reached() -> None:
    extra = parameters(*PARAMETERS, Parameter("out_ptr1", "*fp32", written=True))
    assert rules(extra) == {"coverage"}


def test_unknown_flow_is_a_violation() -> None:
    text = body("tl.store(x_ptr + o, 0)", "y = x_ptr.to(tl.int64)")
    plan = Plan((Parameter("x_ptr", "*fp32", written=True), Parameter("n", "i32")),
                (Launch("k", ("1",), ("x_ptr", "n"), {"BLOCK": 16}),))
    assert rules(plan, text) == {"flow"}


def two_launches(*, zeroed: bool = False, order: int = 1) -> Plan:
    scratch = Scratch("s", "xnumel", "float32", zeroed=zeroed)
    first = Launch("scale", ("1",), ("in_ptr0", "s", "xnumel"), {"XBLOCK": 128})
    second = Launch("scale", ("1",), ("s", "out_ptr0", "xnumel"), {"XBLOCK": 128})
    return Plan(PARAMETERS, (first, second)[::order], (scratch,))


def test_scratch_between_two_launches() -> None:
    assert rules(two_launches()) == set()


def test_scratch_read_before_it_is_stored() -> None:
    assert rules(two_launches(order=-1)) == {"uninitialised"}
    assert rules(two_launches(order=-1, zeroed=True)) == set()


def test_unknown_integers_leave_sizes_unevaluated() -> None:
    plan = launch(grid=("xnumel - 2000",))
    assert contract.check(plan, GOOD) == []


def test_float_atomics() -> None:
    text = body("tl.atomic_add(x_ptr + o, 1.0)", "tl.atomic_add(c_ptr + o, 1)",
                parameters="x_ptr, c_ptr, n, BLOCK: tl.constexpr")
    plan = Plan((Parameter("x", "*fp32", written=True), Parameter("c", "*i32", written=True), Parameter("n", "i32")),
                (Launch("k", ("1",), ("x", "c", "n"), {"BLOCK": 16}),))
    assert contract.check(plan, text, integers={"n": 1}) == []
    assert contract.float_atomics(plan, text) == ("x",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(
        ["in_ptr0", "out_ptr0", "xnumel", "scale", "*fp32", "cdiv(xnumel, 2)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=4)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_json_in_a_plan_is_answered(data: st.DataObject) -> None:
    """One field of a good plan replaced by anything: a violation, a refusal to read it, or a plan that still holds."""
    raw = PLAN.to_json()
    raw["scratch"] = [dataclasses.asdict(Scratch("s", "16", "float32"))]
    section = data.draw(st.sampled_from(["parameters", "launches", "scratch"]))
    key = data.draw(st.sampled_from(sorted(raw[section][0])))
    raw[section][0][key] = data.draw(JSON)
    try:
        plan = Plan.from_json(raw)
    except (TypeError, KeyError, ValueError):
        return
    contract.check(plan, GOOD, integers=INTEGERS)
