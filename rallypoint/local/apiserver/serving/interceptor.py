"""The seam in front of the server: what it tells of each call, and where a call can be kept from its way.

The server runs without one. Tests put faults here; nothing else does.
"""

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a resource: the verb as audit logs and access rules name it."""

    verb: str
    method: str
    path: str
    plural: str
    subresource: str
    namespace: str
    name: str
    user_agent: str
    body: bytes


class Disconnect(Exception):
    """Close the connection without an answer."""


class Interceptor(Protocol):
    """Asked before and after each call, and for each event of a watch. Each may raise Disconnect."""

    async def before(self, call: Call) -> web.Response | None:
        """An answer given instead of the server's own; the call does not take place then."""
        ...

    async def after(self, call: Call) -> None:
        """The call has taken place and is not yet answered."""
        ...

    def passes(self, call: Call, frame: bytes) -> bool:
        """Whether a watch's event reaches its client."""
        ...
