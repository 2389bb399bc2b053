"""A loopback stand-in for GitHub: REST interface and git over smart HTTP, checked against GitHub's own description.

`start(folder)` serves until `hub.stop()`. After a test, `hub.violations` must be empty: it lists every request that the
official description doesn't allow and every answer of the stand-in's own that it doesn't describe.
"""

from tests.github_stand_in.hub import Hub, Repo
from tests.github_stand_in.server import TOKEN, start

__all__ = ["TOKEN", "Hub", "Repo", "start"]
