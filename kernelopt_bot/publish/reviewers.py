"""Who is asked to review: the configuration, else CODEOWNERS, else the source's author.

CODEOWNERS: https://docs.github.com/en/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks, in its order."""
LIMIT = 5
"""Most reviewers asked: a rule with a whole department is no reason to notify it."""

_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})(?:\[bot\])?")
_TEAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/([A-Za-z0-9._-]{1,100})")


@dataclass(frozen=True)
class Reviewers:
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    """Team names without their organisation, as GitHub wants them."""

    def __bool__(self) -> bool:
        return bool(self.users or self.teams)


def chosen(configured: Iterable[str], owners: Iterable[str], author: str) -> Reviewers:
    """The first that names anybody, `LIMIT` at most. Names may begin with `@`; what is no login or team is left out."""
    for names in (configured, owners, (author,)):
        users: list[str] = []
        teams: list[str] = []
        for name in names:
            plain = name.removeprefix("@")
            if team := _TEAM.fullmatch(plain):
                teams.append(team[1])
            elif _LOGIN.fullmatch(plain) and not plain.endswith("[bot]"):
                users.append(plain)
        users, teams = list(dict.fromkeys(users)), list(dict.fromkeys(teams))
        if users or teams:
            return Reviewers(tuple(users[:LIMIT]), tuple(teams[: max(0, LIMIT - len(users))]))
    return Reviewers()


def owners_of(codeowners: str, paths: Iterable[str]) -> tuple[str, ...]:
    """The owners of `paths` (relative, POSIX) by the text of a CODEOWNERS file: for each path its last fitting rule."""
    rules = [rule for line in codeowners.splitlines() if (rule := _rule(line)) is not None]
    found: list[str] = []
    for path in paths:
        found += next((owners for fits, owners in reversed(rules) if fits.match(path)), ())
    return tuple(dict.fromkeys(found))


def _rule(line: str) -> tuple[re.Pattern[str], tuple[str, ...]] | None:
    # A `#` ends the line also after a pattern; a rule without owners takes the earlier rules' owners away.
    words = re.split(r"(?<!\\)#", line, maxsplit=1)[0].split()
    # GitHub's CODEOWNERS has neither negation nor character ranges.
    if not words or words[0].startswith("!") or "[" in words[0]:
        return None
    # The file may come from a pull request: many wildcards would take a regular expression forever.
    if len(words[0]) > 500 or len(re.findall(r"\*+", words[0])) > 4:
        return None
    return _pattern(words[0]), tuple(words[1:])


def _pattern(glob: str) -> re.Pattern[str]:
    """gitignore's rules: a slash at the beginning or inside binds to the root, one at the end means a folder."""
    body = glob.rstrip("/")
    anchored = "/" in body
    out = ""
    for piece in re.split(r"(/\*\*/|\*\*/|/\*\*|\*+|\?)", body.removeprefix("/")):
        match piece:
            case "/**/":
                out += "/(?:.*/)?"
            case "**/":
                out += "(?:.*/)?"
            case "/**":
                out += "/.*"
            case "?":
                out += "[^/]"
            case _ if piece and set(piece) == {"*"}:
                out += "[^/]*"
            case _:
                out += re.escape(piece)
    # `docs/*` owns the files in `docs`, not those in folders below; every other pattern owns what lies below it.
    tail = "/.*" if glob.endswith("/") and body else "" if glob.endswith("/*") else "(?:/.*)?"
    return re.compile(("" if anchored else "(?:.*/)?") + out + tail + r"\Z", re.DOTALL)
