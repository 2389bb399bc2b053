import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.contract import expressions


@pytest.mark.parametrize(("text", "value"), [
    ("1", 1), ("n", 100), ("cdiv(n, 64)", 2), ("min(num_sms, n) * 2", 200), ("next_power_of_2(n)", 128),
    ("max(n // 3, n % 7, 5) - 1", 32), (" n + 1 ", 101),
])
def test_values(text: str, value: int) -> None:
    assert expressions.check(text, {"n"}) is None
    assert expressions.value(text.strip(), {"n": 100, "num_sms": 132}) == value


@pytest.mark.parametrize("text", [
    "", "n +", "m", "n.bit_length()", "n ** 2", "n / 2", "-n", "n << 3", "True", "'n'", "1.5", "[n]", "n if n else 1",
    "__import__('os')", "open('x')", "min(n)", "cdiv(n)", "cdiv(n, 2, 3)", "min(*n)", "min(n, key=n)", "lambda: 1",
    "(n := 1)", "n < 3", "n and 1", "ｎ", "1" * 2000, "n\n", 7, None, "(" * 900,  # noqa: RUF001
])
def test_everything_else_is_refused(text: object) -> None:
    assert expressions.check(text, {"n"})


@given(st.text(max_size=40))
def test_any_text_is_answered_and_what_passes_evaluates(text: str) -> None:
    """What passes raises nothing but ValueError, and gives an integer within 64 bits."""
    if expressions.check(text, {"n"}) is None:
        try:
            value = expressions.value(text, {"n": 3, "num_sms": 2})
        except ValueError:
            return
        assert 0 <= value < 2**63


@given(st.recursive(
    st.sampled_from(["n", "num_sms", "0", "1", "17", "9223372036854775807"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["min", "max", "cdiv"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        inner.map(lambda e: f"next_power_of_2({e})")), max_leaves=8))
def test_the_language_is_what_the_runtime_evaluates(text: str) -> None:
    assert expressions.check(text, {"n"}) is None
    try:
        assert 0 <= expressions.value(text, {"n": 5, "num_sms": 7}) < 2**63
    except ValueError as e:
        assert any(w in str(e) for w in ("negative", "2**63", "zero"))
