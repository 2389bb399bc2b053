from typing import Any

import pytest
import torch._inductor.config as inductor

from kernelopt_bot.compiler.shipped.recipe import RECIPE_VALUES
from kernelopt_bot.contract import options
from kernelopt_bot.contract.candidate import Lever


@pytest.mark.parametrize("name", sorted(options.ALLOWED))
def test_option_exists_with_a_value_of_that_type(name: str) -> None:
    default = inductor.get_config_copy()[name]
    values = options.ALLOWED[name].values
    assert default is None or any(type(default) is type(v) for v in values) or callable(default)
    with inductor.patch({name: values[-1]}):
        assert inductor.get_config_copy()[name] == values[-1]


def test_artifacts_accept_what_the_contract_allows_and_no_more() -> None:
    assert {n: o.values for n, o in options.ALLOWED.items()} == RECIPE_VALUES


def test_nothing_is_allowed_and_denied() -> None:
    assert not options.ALLOWED.keys() & options.DENIED.keys()


def test_every_option_says_why() -> None:
    assert all(o.why for o in options.ALLOWED.values())


@pytest.mark.parametrize(("lever", "given", "device"), [
    ("dispatch", {"layout_optimization": False}, "cuda"),
    ("dispatch", {"coordinate_descent_tuning": True, "max_autotune_pointwise": True}, "cuda:1"),
    ("dispatch", {"combo_kernels": True}, "pretend"),
    ("dispatch", {"cpp.simdlen": 256}, "cpu"),
    ("launch", {"triton.cudagraphs": True}, "cuda:0"),
    ("launch", {"cpp_wrapper": True}, "cpu"),
])
def test_allowed(lever: Lever, given: dict[str, Any], device: str) -> None:
    assert options.check(lever, given, device) == []


@pytest.mark.parametrize(("lever", "given", "device", "words"), [
    ("dispatch", {"freezing": True}, "cuda", "weights"),
    ("dispatch", {"use_fast_math": True}, "cuda", "approximate"),
    ("dispatch", {"cuda.use_fast_math": True}, "cuda", "approximate"),
    ("dispatch", {"cpp.enable_unsafe_math_opt_flag": True}, "cpu", "reassociate"),
    ("dispatch", {"force_same_precision": True}, "cuda", "rounding"),
    ("dispatch", {"triton.codegen_upcast_to_fp32": False}, "cuda", "rounding"),
    ("dispatch", {"allow_tf32": True}, "cuda", "TF32"),
    ("dispatch", {"fallback_random": True}, "cuda", "random"),
    ("dispatch", {"size_asserts": False}, "cuda", "check"),
    ("dispatch", {"no_such_option": True}, "cuda", "allow-list"),
    ("dispatch", {"post_grad_custom_post_pass": "os.system"}, "cuda", "allow-list"),
    ("dispatch", {"triton.cudagraphs": True}, "cuda", "launch"),
    ("launch", {"layout_optimization": False}, "cuda", "dispatch"),
    ("launch", {"cpp_wrapper": True}, "cuda", "apply"),
    ("launch", {"triton.cudagraphs": True}, "cpu", "apply"),
    ("dispatch", {"layout_optimization": 0}, "cuda", "False, True"),
    ("dispatch", {"cpp.simdlen": True}, "cpu", "256"),
    ("dispatch", {"max_fusion_size": 7}, "cuda", "64"),
    ("dispatch", {}, "cuda", "no option"),
])
def test_refused(lever: Lever, given: dict[str, Any], device: str, words: str) -> None:
    (violation,) = options.check(lever, given, device)
    assert words in violation.message
    assert violation.rule == "option"
