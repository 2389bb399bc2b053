"""What the rest of `publish` needs of a REST client: `github.GitHub` is the one there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Json = dict[str, Any]


class Rest(Protocol):
    """GitHub's REST interface for one repository."""

    repository: str
    """`owner/name`."""

    def request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        find: Callable[[], Any] | None = None,
        repeatable: bool = False,
        doing: str = "talking to GitHub",
    ) -> Any:
        """The decoded answer of one request, tried again where that can help and cannot do its work twice.

        `path` is relative to the repository, '' for itself; with a `/` in front it is the API's own path. A POST whose
        answer is lost may have been carried out: it is sent again only if `repeatable` says that twice is like once, or
        after `find` looked for its work and returned None; what `find` returns otherwise is the answer. `find` is
        also asked when GitHub says 422, which is how it calls what exists already. `doing` ends the sentence of an
        error. Raises `github_errors.Answered` for a refusal (`.status`), UserError where GitHub can't be reached.
        """

    def pages(
        self, path: str, *, query: Mapping[str, str] | None = None, key: str = "", limit: int = 1000, doing: str = ""
    ) -> list[Any]:
        """The elements of a listing, up to `limit`; `key` names the list in answers that are objects.

        Raises as `request`.
        """
