"""The interceptor of calls, which only tests set: it can replace responses and drop watch events."""

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a resource; ``verb`` is the verb of audit logs and RBAC rules."""

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
    """Raised to close the connection without a response."""


class Interceptor(Protocol):
    """Called before and after each call, and for each watch event. Each method can raise Disconnect."""

    async def before(self, call: Call) -> web.Response | None:
        """Return a response to send instead of executing the call, or None."""
        ...

    async def after(self, call: Call) -> None:
        """Called when the call has been executed and the response not yet sent."""
        ...

    async def passes(self, call: Call, frame: bytes) -> bool:
        """Return whether to send an event of a watch to the client; later events wait until it returns."""
        ...
