"""Runs the main containers of pods that restart in place as processes of this machine, without pods: as a kubelet does with them.

Tests of ``controller.agent`` use it, and the measurement of restarts in place.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

import controller
from api.restart_report import EXIT_CODE, SETTINGS_VARIABLE, RestartReport, report_in
from controller.policy.in_place import ADDRESS_VARIABLE

AGENT = Path(controller.__file__).with_name("agent.py")
_STATE, _AGENT_FOLDER = "/var/lib/rallypoint", "/etc/rallypoint"


class ContainerProcess:
    """The main container of one pod. It is started again if it ends with the exit code of a restart in place."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        folder: Path,
        *,
        port: int,
        on_restart: Callable[[str, int, str], None] = lambda name, code, message: None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """``folder`` gets the volumes. ``on_restart`` is called with the pod's name, the exit code and the termination message."""
        self.name: str = pod["metadata"]["name"]
        self.reports: list[RestartReport] = []
        self._folder = folder / self.name
        self._on_restart = on_restart
        container = pod["spec"]["containers"][0]
        self._log = self._folder / "termination-log"
        self._argv = [self._here(part) for part in (*container["command"], *(container.get("args") or ()))]
        given = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        settings = orjson.loads(given[SETTINGS_VARIABLE])
        settings |= {
            "host": "127.0.0.1",
            "port": port,
            "log": str(self._log),
            "state": self._here(settings["state"]),
        }
        self._env = {
            **(env or {"PATH": os.environ["PATH"]}),
            **given,
            SETTINGS_VARIABLE: orjson.dumps(settings).decode(),
            ADDRESS_VARIABLE: "127.0.0.1",
        }
        self._process: Process | None = None

    def _here(self, text: str) -> str:
        return text.replace(_AGENT_FOLDER, str(self._folder)).replace(_STATE, str(self._folder))

    async def run(self) -> int:
        """Run the container until it ends for good, and return its exit code. If canceled, kill it."""
        self._folder.mkdir(parents=True)
        shutil.copy(AGENT, self._folder)
        try:
            while True:
                self._log.write_text("")
                self._process = await asyncio.create_subprocess_exec(*self._argv, env=self._env)
                code = await self._process.wait()
                if code != EXIT_CODE:
                    return code if code >= 0 else 128 - code
                message = self._log.read_text()
                if report := report_in(code, message):
                    self.reports.append(report)
                self._on_restart(self.name, code, message)
        finally:
            if self._process and self._process.returncode is None:
                self._process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await self._process.wait()
                if self._process.returncode is None:
                    self._process.kill()
                    await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the first process of the container."""
        if self._process:
            self._process.send_signal(number)
