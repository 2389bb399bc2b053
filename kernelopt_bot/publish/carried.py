"""What a pull request of ours offers, made anew for the branch that its source was merged into.

It was verified there. The new commit has that branch's head as a parent, so that the pull request shows our files
alone, and says by its trailer which branch it is for.
"""

from __future__ import annotations

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.branches import Branches
from kernelopt_bot.publish.opened import offered
from kernelopt_bot.publish.publication import Publication
from kernelopt_bot.publish.rest import Rest
from kernelopt_bot.publish.trees import blob, tree_at

_LONGEST = 4 << 20


def carried(rest: Rest, branch: str, into: str, number: int, artifact_root: str) -> Publication | None:
    """The publication on `branch` for `into`, with title and body of pull request `number`; None where the branch is
    not ours as it stands, offers nothing there, or edits a Triton kernel, which only a search proves. Only files below
    `artifact_root` go along. Raises UserError."""
    branches = Branches(rest)
    tip, base = branches.tip(branch), branches.sha(into)
    if tip is None or not tip.ours or not base or tip.trailers.edits:
        return None
    files: dict[str, bytes] = {}
    targets = sorted(offered(rest, base, tip.sha, artifact_root))
    for target in targets:
        folder = f"{artifact_root}/{target}"
        for name, entry in tree_at(rest, tip.sha, folder).items():
            if entry["mode"] != "100644" or int(entry.get("size", 0)) > _LONGEST:
                raise UserError("our branch holds something that we do not write", where=f"{folder}/{name}"[:200],
                                fix="look at the branch")
            files[f"{folder}/{name}"] = blob(rest, str(entry["sha"]), _LONGEST)
    if not files:
        return None
    pull = rest.request("GET", f"pulls/{number}", doing="reading the pull request")
    said = str(rest.request("GET", f"git/commits/{tip.sha}", doing="reading the branch")["message"])
    return Publication(
        branch, into, base, str(pull["title"]), str(pull["body"] or ""), said.partition("\nKernelOPT-Tree: ")[0] + "\n",
        files, replaced=tuple(f"{artifact_root}/{target}/kernels" for target in targets), artifact_root=artifact_root)
