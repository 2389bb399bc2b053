from __future__ import annotations

import time

import pytest

from kernelopt_bot.publish.reviewers import LIMIT, Reviewers, chosen, owners_of

RULES = """
# everyone
*                 @all
*.py              @py        # and a comment
/kernels/         @acme/gpu @lee
docs/*            @docs
src/**/gen        @gen
/vendored/
!*.md             @never
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("README.md", ("@all",)),
        ("a/b.py", ("@py",)),
        ("kernels/block/norm.py", ("@acme/gpu", "@lee")),
        ("sub/kernels/x.txt", ("@all",)),
        ("docs/a.txt", ("@docs",)),
        ("docs/deep/a.txt", ("@all",)),
        ("src/gen/x", ("@gen",)),
        ("src/a/b/gen/x", ("@gen",)),
        ("vendored/x.py", ()),
    ],
)
def test_the_last_fitting_rule_owns(path: str, owners: tuple[str, ...]) -> None:
    assert owners_of(RULES, [path]) == owners


def test_the_configuration_comes_first_then_owners_then_the_author() -> None:
    assert chosen(("kim",), ("@lee",), "sam") == Reviewers(("kim",))
    assert chosen((), ("@lee", "@acme/gpu", "mail@example.invalid"), "sam") == Reviewers(("lee",), ("gpu",))
    assert chosen((), (), "sam") == Reviewers(("sam",))
    assert not chosen((), ("nobody@example.invalid",), "renovate[bot]")


def test_a_department_is_not_notified() -> None:
    many = tuple(f"@user{i}" for i in range(30))
    assert len(chosen((), many, "").users) == LIMIT


def test_a_hostile_file_takes_no_time() -> None:
    began = time.monotonic()
    assert owners_of("\n".join(["*a" * 200 + " @x", "/**/*a*/*b*/**/*c @x"] * 500), ["a" * 400 + "/x"] * 5) == ()
    assert time.monotonic() - began < 5
