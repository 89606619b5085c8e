"""A client of pods whose containers run commands and have logs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import orjson

from controller.kube.remote_command import ERROR, STDOUT

SUCCESS: Mapping[str, Any] = {"status": "Success"}


class Containers:
    """A client whose pods print these texts, or raise these errors; None never answers. Each pod's log has these lines."""

    def __init__(
        self, outputs: Mapping[str, str | Exception | None], logs: Mapping[str, list[bytes]]
    ) -> None:
        self._outputs = outputs
        self._logs = {pod: [*bodies] for pod, bodies in logs.items()}
        self.commands: dict[str, list[str]] = {}
        """The last command in each pod."""
        self.status = SUCCESS
        """How commands end."""

    @asynccontextmanager
    async def socket(self, path: str, _: object) -> AsyncIterator[AsyncIterator[aiohttp.WSMessage]]:
        pod = urlsplit(path).path.split("/")[-2]
        self.commands[pod] = parse_qs(urlsplit(path).query)["command"]
        output = self._outputs[pod]
        if isinstance(output, Exception):
            raise output
        yield self._messages(output)

    async def _messages(self, output: str | None) -> AsyncIterator[aiohttp.WSMessage]:
        if output is None:
            await asyncio.Event().wait()
        for data in (
            bytes((STDOUT,)) + str(output).encode(),
            bytes((ERROR,)) + orjson.dumps(self.status),
        ):
            yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, data, None)

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        return self._logs[path.split("/")[-2]].pop(0)
