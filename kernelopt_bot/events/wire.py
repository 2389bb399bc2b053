"""A job as text, from one phase to the next. The reader trusts no more of it than its types."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Job

LONGEST = 1_000_000
"""Characters: GitHub's limit of a job's outputs is 1 MB."""

_JOB = TypeAdapter(Job)


def dump(job: Job) -> str:
    """JSON on one line, so that it fits into GITHUB_OUTPUT as it is."""
    return _JOB.dump_json(job).decode()


def load(text: str) -> Job:
    """The job that `dump` wrote. Raises InputError."""
    if len(text) > LONGEST:
        raise InputError("the job is too long", where="the output of the phase authorise", fix="hand it on unchanged")
    try:
        return _JOB.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise InputError(f"the job is malformed: {first['msg']}", where=place,
                         fix="hand on the output of the phase authorise unchanged") from error
