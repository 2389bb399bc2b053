"""`kernelopt init`: what there is to optimise, and the files to begin with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kernelopt_bot.config import FILES, Config, load, nearest
from kernelopt_bot.config_template import Listed, entry, text
from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.report.templates import SHARED
from kernelopt_bot.report.templates import environment as templates
from kernelopt_bot.targets.discover import ENTRY, name_of
from kernelopt_bot.targets.inventory import Found, Inventory, inventory

INPUTS_FILE = "kernelopt_inputs.py"
WORKFLOWS = ("first-run", "pull-requests", "comment", "nightly")
# A checkout has them in its documentation.
_PLACES = (Path(__file__).resolve().parents[2] / "docs" / "workflows", *(p / "workflows" for p in SHARED))
# What stands in them for a release: its owner and its commit are not known to an installed package.
_RELEASE = re.compile(r"OWNER/kernelopt-bot(/[\w./-]+)?@0{40} # v1")
_ACTION = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<ref>[\w.-]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Stub:
    """A chosen model and the names of the functions that its author is to write. '': not needed."""

    path: str
    entry: str
    inputs: str
    init: str
    forward: tuple[str, ...]
    init_parameters: tuple[str, ...]


@click.command("init")
@click.argument("chosen", nargs=-1, metavar="[PATH:CLASS]...")
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("."),
              show_default=True, help="The repository's root.")
@click.option("--workflow", "workflows", type=click.Choice([*WORKFLOWS, "all", "none"]), multiple=True,
              default=("all",), show_default=True, help="Workflow files to write.")
@click.option("--action", default="", metavar="OWNER/REPOSITORY@REF",
              help="Release of KernelOPT that the workflows use, best by its commit; without it they need an edit.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@click.option("--print", "only_print", is_flag=True, help="Print the files instead of writing them.")
def command(chosen: tuple[str, ...], root: Path, workflows: tuple[str, ...], action: str, force: bool,
            only_print: bool) -> None:
    """List every model and kernel, and write .kernelopt.yml, an inputs stub and workflow files.

    The models named as PATH:CLASS become targets; the others are in the configuration as comments. Nothing is executed.
    """
    config = load(root)
    seen = inventory(root, config)
    stubs = [stub(_chosen(seen, spec)) for spec in chosen]
    files = planned(seen, stubs, root, workflow_files(workflows, action))
    if only_print:
        for name, content in files.items():
            click.echo(f"# ---- {name}\n{content}")
        return
    _show(seen, config)
    own = planned(seen, (), root, {})
    for name, content in files.items():
        # What an earlier `init` wrote and nobody edited is no one's work.
        click.echo(_write(root, name, content, force or _is(root / name, own.get(name))))
    for line in (*_not_there(root, stubs), *_left_open(files, action)):
        click.echo(line)
    click.echo(f"next: fill in {INPUTS_FILE}, then `kernelopt check`" if stubs and any(s.inputs for s in stubs)
               else "next: `kernelopt init PATH:CLASS` for a model of the list, then `kernelopt check`")


def planned(seen: Inventory, stubs: Sequence[Stub], root: Path, workflows: dict[str, str]) -> dict[str, str]:
    """Every file with its text, by its path below the root."""
    by_model = {(s.path, s.entry): s for s in stubs}
    listed = []
    for f in seen.found:
        made = by_model.get((f.path, f.name))
        if f.kind == "module" and (made or not (f.target and f.name == ENTRY)):
            where = made or stub(f)
            listed.append(_listed(where, active=made is not None))
    there = next((name for name in FILES if (root / name).is_file()), FILES[0])
    files = {there: text(listed)}
    missing = [s for s in stubs if s.inputs]
    if missing:
        template = templates("init").get_template("kernelopt_inputs.py.j2")
        files[INPUTS_FILE] = template.render(models=missing).rstrip() + "\n"
    return files | {f".github/workflows/kernelopt-{name}.yml": content for name, content in workflows.items()}


def _listed(s: Stub, *, active: bool) -> Listed:
    return Listed(s.path, s.entry, f"{INPUTS_FILE}:{s.inputs}" if s.inputs else "",
                  f"{INPUTS_FILE}:{s.init}" if s.init else "", active)


def _is(path: Path, content: str | None) -> bool:
    try:
        return content is not None and not path.is_symlink() and path.read_text(encoding="utf-8") == content
    except (OSError, UnicodeDecodeError):
        return False


def _not_there(root: Path, stubs: Sequence[Stub]) -> list[str]:
    """What to add by hand to files that were kept. Raises InputError."""
    known = {(t.path, t.entry) for t in load(root).targets}
    lines = [line for s in stubs if s.inputs and (s.path, s.entry) not in known
             for line in entry(_listed(s, active=True))]
    said = ["add below `targets:` in the configuration, which was kept:", *lines] if lines else []
    path = root / INPUTS_FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if missing := [name for s in stubs for name in (s.inputs, s.init) if name and f"def {name}(" not in text]:
        said.append(f"write into {INPUTS_FILE}, which was kept: {', '.join(missing)} "
                    "(`kernelopt init --print` with the same models shows them)")
    return said


def stub(f: Found) -> Stub:
    """Nothing has to be written for a model that is a target already."""
    if f.target:
        return Stub(f.path, f.name, "", "", f.forward, f.init)
    base = name_of(f.path, f.name).lower()
    return Stub(f.path, f.name, f"{base}_inputs", f"{base}_init" if f.init else "", f.forward, f.init)


def workflow_files(wanted: Sequence[str], action: str = "") -> dict[str, str]:
    """The documentation's own workflow files by name; `action`, `owner/repository@ref`, is the release that they use.

    Raises InputError for another `action`, Unavailable where this installation has no such files.
    """
    release = _ACTION.fullmatch(action)
    if action and release is None:
        raise InputError(f"{action} is no release", where="--action",
                         fix="give OWNER/REPOSITORY@ and a commit (40 hexadecimal digits) or a tag")
    names = [n for n in WORKFLOWS if n in wanted or "all" in wanted] if "none" not in wanted else []
    place = next((p for p in _PLACES if p.is_dir()), None)
    if names and place is None:
        raise Unavailable("this installation has no workflow files", where=" or ".join(str(p) for p in _PLACES),
                          fix="run with `--workflow none` and copy them from the documentation")
    texts = {n: (place / f"{n}.yml").read_text(encoding="utf-8") for n in names if place is not None}
    if release is None:
        return texts
    return {n: _RELEASE.sub(lambda m: f"{release['repository']}{m[1] or ''}@{release['ref']}", text)
            for n, text in texts.items()}


def _left_open(files: dict[str, str], action: str) -> list[str]:
    """What the workflow files still ask of their author."""
    if any(_RELEASE.search(text) for text in files.values()):
        return ["note: the workflows name OWNER/kernelopt-bot and a commit of zeros: put the release's there, or say "
                "--force --action OWNER/REPOSITORY@COMMIT"]
    ref = action.rpartition("@")[2]
    moves = ref and not _COMMIT.fullmatch(ref) and any(name.startswith(".github/") for name in files)
    return [f"note: {ref} can be moved to other code; a commit can not"] if moves else []


def _chosen(seen: Inventory, spec: str) -> Found:
    """The model that PATH:CLASS names; PATH alone where its file has one. Raises InputError."""
    path, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    path = Path(path).as_posix()
    models = [f for f in seen.found if f.kind == "module"]
    found = [f for f in models if f.path == path and name in ("", f.name)]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise InputError(f"{path} has {len(found)} models", where=spec,
                         fix="name one: " + ", ".join(f"{path}:{f.name}" for f in found))
    near = nearest(spec, [f"{f.path}:{f.name}" for f in models])
    raise InputError(f"there is no model {spec}", where=path,
                     fix=f"did you mean {near}?" if near else "run `kernelopt init` to list what there is")


def _show(seen: Inventory, config: Config) -> None:
    for f in seen.found:
        state = "target" if f.target else f.missing or f"{f.kind} kernel"
        click.echo(f"{f.path}:{f.line}  {f.name}  {state}")
    for path, reason in seen.broken:
        click.echo(f"{path}  does not parse: {reason}")
    if not seen.found:
        click.echo("no model and no kernel found")
    budget, events = config.budget, config.events
    click.echo(f"limits: {budget.gpu_minutes:g} GPU minutes a pull request, {events.runs_a_day} runs a day")


def _write(root: Path, name: str, content: str, force: bool) -> str:
    """What was done, in words. Raises InputError where the file cannot be written."""
    path = root / name
    there = path.exists() or path.is_symlink()
    if there and not force:
        return f"kept:  {name} (it is there already; --force overwrites it)"
    if path.is_symlink() or not path.parent.resolve().is_relative_to(root.resolve()):
        raise InputError("the file is a link, or below one that leaves the repository", where=name,
                         fix="remove the link, or write the file by hand from `kernelopt init --print`")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"it cannot be written: {error.strerror}", where=name, fix="check its permissions") from error
    return f"wrote: {name}"
