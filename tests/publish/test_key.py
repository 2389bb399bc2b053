from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.publish.key import base_name, content_key, key_of, trailers_of, with_key, with_trailers
from kernelopt_bot.search.result import TargetResult
from tests.report import results


def test_what_would_run_decides_not_how_fast_it_was() -> None:
    full = results.full_result()
    assert full.headline is not None
    key = content_key([full])
    slower = replace(full, headline=replace(full.headline, speedup=1.1), spent={}, noise=None, secret="other")
    assert content_key([slower]) == key
    assert content_key([replace(full, trials=full.trials[:2])]) == key
    gpu = full.environment["gpu"]
    assert content_key([replace(full, environment={**full.environment, "gpu": {**gpu, "uuid": "another"}})]) == key
    for other in changed(full):
        assert content_key([other]) != key


def changed(full: TargetResult) -> list[TargetResult]:
    kernel, options, *_ = full.trials
    return [
        replace(full, trials=(kernel,)),
        replace(full, trials=(replace(kernel, candidate=replace(kernel.candidate, source="other")), options)),
        replace(
            full, trials=(kernel, replace(options, candidate=replace(options.candidate, options={"cpp_wrapper": True})))
        ),
        replace(full, covered=("x: (1,) float32",)),
        replace(full, environment={**full.environment, "torch": "2.13.0"}),
        replace(full, environment={**full.environment, "gpu": {**full.environment["gpu"], "name": "NVIDIA L4"}}),
        replace(full, artifact="elsewhere"),
    ]


def test_the_order_of_targets_and_failed_ones_do_not_matter() -> None:
    one, failed = results.full_result(), results.failed_result()
    two = replace(one, target=replace(one.target, name="another"))
    assert content_key([one, two]) == content_key([two, failed, one])


@given(st.text(), st.text("0123456789abcdef", min_size=64, max_size=64))
def test_the_last_trailer_counts(message: str, key: str) -> None:
    assert key_of(with_key(message, key)) == key
    assert key_of(with_key(f"{message}\n\nKernelOPT-Key: {'0' * 64}", key)) == key


def test_other_messages_have_no_key() -> None:
    for message in (
        "fix",
        "KernelOPT-Key: short",
        "see KernelOPT-Key: " + "a" * 64,
        "KernelOPT-Key: " + "a" * 64 + " x",
    ):
        assert key_of(message) == ""


def test_the_edited_targets_are_in_the_message() -> None:
    message = with_trailers(with_key("perf: x", "a" * 64, ("ops_norm", "@mention")), tree="b" * 40, base_ref="main")
    found = trailers_of(message)
    assert (found.key, found.tree, found.edits) == ("a" * 64, "b" * 40, {base_name("ops_norm"), base_name("@mention")})
    assert trailers_of(with_key("perf: x", "a" * 64)).edits == frozenset()
    # One blank line before all trailers, or git takes only the last ones for trailers.
    assert message.count("\n\n") == 1
