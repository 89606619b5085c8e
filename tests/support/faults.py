"""Faults of the embedded API server: rules that say which calls fail, and how.

    faults = Faults([Rule(Reset(committed=True), verb="create", plural="pods", times=1)])
    server = ApiServer(crds=[...], interceptor=faults)

The first rule that matches a call and is not used up applies. ``Faults.calls`` lists all calls that reached the server.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
from aiohttp import web

from rallypoint.local.apiserver.serving.interceptor import Call, Disconnect


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with a Status of this code; the server does not handle the call."""

    code: int
    reason: str = ""
    message: str = "refused by a fault"
    retry_after_seconds: int = 0
    fields: tuple[tuple[str, str], ...] = ()
    """(field, message) of each cause, as in the API server's own validation errors."""
    cause: str = "FieldValueInvalid"
    """The reason of each cause."""

    def response(self) -> web.Response:
        causes = [{"reason": self.cause, "field": path, "message": text} for path, text in self.fields]
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'Object "refused" is invalid: {self.message}' if causes else self.message,
            "reason": self.reason,
            "details": {
                "name": "refused",
                "kind": "Object",
                "causes": causes,
                "retryAfterSeconds": self.retry_after_seconds,
            },
            "code": self.code,
        }
        headers = {"Retry-After": str(self.retry_after_seconds)} if self.retry_after_seconds else {}
        return web.Response(
            body=orjson.dumps(status), status=self.code, headers=headers, content_type="application/json"
        )


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with these bytes."""

    body: bytes = b""
    code: int = 200

    def response(self) -> web.Response:
        return web.Response(body=self.body, status=self.code, content_type="application/json")


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection before the server handles the call, or after it has ``committed`` the call."""

    committed: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait on loop time before the server handles the call, or after it has ``committed`` the call."""

    seconds: float
    committed: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Do not send an event of a watch."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Break the connection of a watch instead of sending an event."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Send an event of a watch, and those after it, later on loop time."""

    seconds: float


Fault = Refuse | Say | Reset | Delay | Drop | Cut | Lag


@dataclass(slots=True)
class Rule:
    """The fault of the calls that match. Empty matches any; the rule applies ``times`` times, or always if None."""

    fault: Fault
    verb: str = ""
    plural: str = ""
    name: str = ""
    namespace: str = ""
    subresource: str | None = None
    containing: bytes = b""
    """The body of the call, or the event of a watch, must contain this."""
    times: int | None = None
    met: int = field(default=0, init=False)
    """How often the rule has applied."""

    def fits(self, call: Call, content: bytes) -> bool:
        return (
            (self.times is None or self.met < self.times)
            and self.verb in {"", call.verb}
            and self.plural in {"", call.plural}
            and self.name in {"", call.name}
            and self.namespace in {"", call.namespace}
            and self.subresource in {None, call.subresource}
            and self.containing in content
        )


class Faults:
    """An interceptor that applies rules, which tests may add and remove at any time.

    Calls of the user agent ``spared`` meet no fault.
    """

    def __init__(self, rules: Sequence[Rule] = (), *, spared: str = "nobody") -> None:
        self.rules = list(rules)
        self.spared = spared
        self.calls: list[Call] = []
        self._after: dict[int, Fault] = {}

    async def before(self, call: Call) -> web.Response | None:
        self.calls.append(call)
        match fault := self._decide(call, call.body, (Refuse, Say, Reset, Delay)):
            case Refuse() | Say():
                return fault.response()
            case Reset(committed=False):
                raise Disconnect
            case Delay(seconds, committed=False):
                await asyncio.sleep(seconds)
            case Reset() | Delay():
                self._after[id(call)] = fault
            case _:
                pass
        return None

    async def after(self, call: Call) -> None:
        match self._after.pop(id(call), None):
            case Reset():
                raise Disconnect
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case _:
                pass

    async def passes(self, call: Call, frame: bytes) -> bool:
        match self._decide(call, frame, (Drop, Cut, Lag)):
            case Drop():
                return False
            case Lag(seconds):
                await asyncio.sleep(seconds)
                return True
            case Cut():
                raise Disconnect
            case _:
                return True

    def count(self, verb: str, plural: str = "", subresource: str | None = None) -> int:
        """Return how many such calls arrived."""
        return sum(
            call.verb == verb and plural in {"", call.plural} and subresource in {None, call.subresource}
            for call in self.calls
        )

    def _decide(self, call: Call, content: bytes, kinds: tuple[type[Fault], ...]) -> Fault | None:
        for rule in self.rules if call.user_agent != self.spared else ():
            if isinstance(rule.fault, kinds) and rule.fits(call, content):
                rule.met += 1
                return rule.fault
        return None
