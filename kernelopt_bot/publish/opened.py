"""Our open pull requests, as they count for a sweep, and what they offer."""

from __future__ import annotations

from kernelopt_bot.config import Config
from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.key import trailers_of
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.trees import MOST_FILES, files_between
from kernelopt_bot.search.sweep import Opened


def opened(rest: Rest, config: Config, own: str) -> Opened:
    """Our open pull requests: how many, and for which targets. `own` is the branch of the sweep that asks: while its
    own pull request is open, another result would take the place of what people look at. What cannot be read lets
    nothing be searched. Never raises UserError."""
    try:
        pulls = ours(rest, config.publish.branch_prefix)
        mine = next((p for p in pulls if p["head"]["ref"] == own), None)
        if mine is not None:
            why = f"pull request #{mine['number']} of an earlier sweep is open: merge or close it"
            return Opened(len(pulls), (), why)
        if len(pulls) >= config.sweep.open_pull_requests:
            return Opened(len(pulls))
        targets = {t for p in pulls for t in offered(rest, p["base"]["sha"], p["head"]["sha"], config.artifact.root)}
    except (UserError, KeyError, TypeError, ValueError) as e:
        said = e.what if isinstance(e, UserError) else "GitHub's answer has another shape"
        return Opened(0, (), f"our open pull requests cannot be read: {said}")
    return Opened(len(pulls), tuple(sorted(targets)))


def ours(rest: Rest, prefix: str) -> list[Json]:
    """Open pull requests from branches of this repository with our names. Raises UserError."""
    found = rest.pages("pulls", query={"state": "open"}, doing="looking for our pull requests")
    return [p for p in found if p["head"]["ref"].startswith(prefix)
            and (p["head"].get("repo") or {}).get("full_name") == rest.repository]


def offered(rest: Rest, base: str, head: str, artifact_root: str) -> frozenset[str]:
    """The targets whose artifacts differ between two commits. Raises UserError, also where there are too many files."""
    files = files_between(rest, base, head)
    if files is None:
        raise UserError(f"over {MOST_FILES - 1} files differ", where=f"{base}...{head}", fix="look at the branch")
    below = [str(f["filename"]).removeprefix(f"{artifact_root}/") for f in files
             if str(f["filename"]).startswith(f"{artifact_root}/")]
    return frozenset(name.partition("/")[0] for name in below if "/" in name)


def edited(rest: Rest, head: str) -> frozenset[str]:
    """The targets whose files a commit of ours edits in place, each as `key.base_name` names it; none of another's
    commit. Raises UserError."""
    commit = rest.request("GET", f"git/commits/{head}", doing="reading the branch")
    return trailers_of(str(commit["message"])).edits
