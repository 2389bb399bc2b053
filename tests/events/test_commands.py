"""The grammar of comments: what fires, what it means, what is answered to a mistake; and what never fires."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernelopt_bot.events.commands import LONGEST, MARKER, Command, Mistake, parse, parse_line, usage

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(("body", "command"), [
    ("/kernelopt optimize", Command("optimize")),
    ("/kernelopt optimize\r\nthanks", Command("optimize")),
    ("/kernelopt optimize\rthanks", Command("optimize")),
    ("/kernelopt\toptimize  ", Command("optimize")),
    ("/KernelOPT verify", Command("verify")),
    ("/kernelopt status", Command("status")),
    ("/kernelopt cancel", Command("cancel")),
    ("/kernelopt help", Command("help")),
    ("/kernelopt", Command("help")),
    ("/kernelopt optimize encoder models/net.py 'my models/net.py:Décodeur' encoder",
     Command("optimize", ("encoder", "models/net.py", "my models/net.py:Décodeur"))),
    ("/kernelopt optimize --levers launch,kernel --budget 20m --max-cost 2.00 --sha " + SHA,
     Command("optimize", (), ("launch", "kernel"), 1200.0, 2.0, SHA)),
    ("/kernelopt optimize --levers='kernel, dispatch' --budget=90s --max-cost=2 --sha=ABCDEF0",
     Command("optimize", (), ("kernel", "dispatch"), 90.0, 2.0, "abcdef0")),
    ("/kernelopt verify encoder --sha " + SHA, Command("verify", ("encoder",), sha=SHA)),
    ("/kernelopt optimize --budget 1h", Command("optimize", budget_s=3600.0)),
])
def test_commands(body: str, command: Command) -> None:
    assert parse(body) == command


@pytest.mark.parametrize(("body", "words"), [
    ("/kernelopt optimise", "`optimise`. Did you mean `optimize`?"),
    ("/kernelopt OPTIMIZE", "Did you mean `optimize`?"),
    ("/kernelopt zzz", "Valid: `optimize`, `verify`, `status`, `cancel`, `help`."),
    ("/kernelopt optimize --lever kernel", "Did you mean `--levers`?"),
    ("/kernelopt optimize --levers kernels", "Did you mean `kernel`?"),
    ("/kernelopt optimize --levers kernel,,launch", "There is no lever"),
    ("/kernelopt optimize --levers kernel,kernel", "at most once"),
    ("/kernelopt optimize --budget 20", "write `90s`, `20m` or `1h`"),
    ("/kernelopt optimize --budget 1s", "between `10s` and `24h`"),
    ("/kernelopt optimize --budget 25h", "between `10s` and `24h`"),
    ("/kernelopt optimize --budget \uff120m", "is no time"),
    ("/kernelopt optimize --max-cost -1", "`--max-cost` needs a value"),
    ("/kernelopt optimize --max-cost nan", "is no amount"),
    ("/kernelopt optimize --max-cost 1e9", "is no amount"),
    ("/kernelopt optimize --sha main", "is no commit"),
    ("/kernelopt optimize --sha", "`--sha` needs a value"),
    ("/kernelopt optimize --sha=", "`--sha` needs a value"),
    ("/kernelopt optimize --budget --sha", "`--budget` needs a value"),
    ("/kernelopt optimize --budget 1m --budget 2m", "given twice"),
    ("/kernelopt verify --budget 1m", "`verify` has no option `--budget`"),
    ("/kernelopt status --sha 1", "`status` has no option `--sha`. It has none."),
    ("/kernelopt cancel everything", "`cancel` takes no target"),
    ("/kernelopt optimize ../x.py", "is no target"),
    ("/kernelopt optimize a/../../x.py", "is no target"),
    ("/kernelopt optimize /etc/x.py", "is no target"),
    ("/kernelopt optimize 'a\\x.py'", "is no target"),
    ("/kernelopt optimize x.py:a.b", "is no target"),
    ("/kernelopt optimize $(id)", "is no target"),
    ("/kernelopt optimize ${{ github.token }}", "is no target"),
    ("/kernelopt optimize " + " ".join(f"t{n}" for n in range(21)), "At most 20 targets"),
    ("/kernelopt optimize 'encoder", "not closed"),
    ("/kernelopt optimize encoder\\", "not closed"),
    ("/kernelopt optimize enc\u200boder", "cannot be seen"),
    ("/kernelopt optimize \u202eredocne", "cannot be seen"),
    ("/kernelopt optimize a\x0bb", "cannot be seen"),
    ("/kernelopt optimize " + "a" * LONGEST, "longer than"),
])
def test_mistakes_are_answered(body: str, words: str) -> None:
    answer = parse(body)
    assert isinstance(answer, Mistake)
    assert words in answer.text
    assert len(answer.text) < 400


@pytest.mark.parametrize("body", [
    "", "\n/kernelopt optimize", "> /kernelopt optimize", ">/kernelopt optimize", "`/kernelopt optimize`",
    "```\n/kernelopt optimize\n```", "~~~\n/kernelopt optimize\n~~~",
    "    /kernelopt optimize", "\t/kernelopt optimize",
    " /kernelopt optimize", "please /kernelopt optimize", "- /kernelopt optimize", "/kerneloptimize",
    "/kernelopt-bot optimize", "/kernelopt: optimize", "\\/kernelopt optimize", "<!-- -->/kernelopt optimize",
    "@octocat /kernelopt optimize", "//kernelopt optimize", "/\u212aernelopt optimize",
    f"/kernelopt optimize\n{MARKER}:status -->", "\ufeff/kernelopt optimize", "/kernelopt\u00a0optimize",
])
def test_what_never_fires(body: str) -> None:
    assert parse(body) is None


@pytest.mark.parametrize("word", [
    "@everyone", "<b>", "<img src=x onerror=1>", "[x](http://x)", "`@a`", "!#1", "::error::x"])
def test_what_a_mistake_repeats_stands_in_a_code_span(word: str) -> None:
    answer = parse(f"/kernelopt '{word}'")
    assert isinstance(answer, Mistake)
    assert answer.text.count("`") % 2 == 0
    outside = "".join(answer.text.split("`")[::2])
    assert not set("@<>[]#") & set(outside)


def test_the_usage_names_every_command_and_option() -> None:
    for word in ("optimize", "verify", "status", "cancel", "help", "--levers", "--budget", "--max-cost", "--sha"):
        assert word in usage()
    assert parse(usage()) is None


LINES = st.text() | st.from_regex(r"/kernelopt[ \t][ -~]{0,80}", fullmatch=True)
WORDS = st.lists(st.sampled_from([
    "optimize", "verify", "--levers", "--budget", "--sha", "kernel,launch", "20m", "encoder", "a.py:B", "'", '"', "\\",
    "--levers=", "=", "--", "-", "$(id)", "`x`", SHA]), max_size=8).map(" ".join)


@given(LINES | WORDS.map("/kernelopt ".__add__))
def test_it_never_raises_and_every_answer_is_whole(body: str) -> None:
    answer = parse(body)
    if isinstance(answer, Mistake):
        assert answer.text.count("`") % 2 == 0
        assert "\n" not in answer.text
    elif answer is not None:
        assert body[:10].lower() == "/kernelopt"


@given(st.text(alphabet=st.sampled_from(list("> \t`~-*#<!|\n\r")), min_size=1), st.text())
@example("```\n", "")
@example("> quoted\n\n", "")
def test_nothing_fires_behind_a_quote_code_or_an_earlier_line(before: str, after: str) -> None:
    assert parse(f"{before}/kernelopt optimize{after}") is None


@given(st.text())
def test_lines_below_the_first_change_nothing(below: str) -> None:
    if MARKER not in below:
        assert parse(f"/kernelopt optimize encoder\n{below}") == Command("optimize", ("encoder",))


@given(st.text())
def test_a_line_without_the_word_never_raises(line: str) -> None:
    assert isinstance(parse_line(line), Command | Mistake)
