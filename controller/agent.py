"""Starts the command of a container, and restarts it in place together with those of the job's other pods.

``controller.policy.in_place`` puts this file into a ConfigMap and makes it the first process of a pod. It runs with the Python of the
user's image: Python 3.6 or newer, and nothing beyond the standard library.

The agents connect to the coordinator, which is the agent of the first pod. When a command fails that may restart, the coordinator tells
all others to kill theirs, and the failed agent to end its container with ``RESTART_EXIT_CODE`` and a report as termination message. The
kubelet restarts that container alone, which is how the operator learns of the restart. When every agent waits, the coordinator starts the
next attempt. In all other cases the container ends with the exit code of its command, and the operator decides.

Messages are lines of JSON. An agent never executes anything but its own command.
"""

import asyncio
import hmac
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SETTINGS = "RALLYPOINT_AGENT"
ADDRESS = "RALLYPOINT_AGENT_ADDRESS"
ATTEMPT = "RALLYPOINT_RESTART_ATTEMPT"
RESTART_EXIT_CODE = 222
OWN_EXIT_CODE = 221
"""What stands for RESTART_EXIT_CODE if a command ends with that by itself."""
TERMINATED = 128 + signal.SIGTERM

RECONNECT_SECONDS = 0.5
HELLO_SECONDS = 10.0
DECISION_SECONDS = 5.0
"""How long a failed agent waits until all agents are connected. Then its container ends with the exit code of its command."""
RESTART_SECONDS = 300.0
"""How long a restart may take, its pause apart, before the containers end and the operator decides."""
LONGEST_MESSAGE = 1000
LONGEST_REPORT = 2000
"""In bytes. The kubelet keeps 4 KiB of a termination message, and less in pods with more than three containers."""
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OSError, asyncio.TimeoutError)
"""What a malformed message or a broken connection raises."""


class Connection:
    """One end of a connection that transports lines of JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_waiting = False
        """Whether no command runs at the other end."""
        self.failed: tuple[int, str] = 0, ""
        """The exit code and the action of a failure that has not been decided on."""
        enable_keepalive(writer.get_extra_info("socket"))

    def send(self, **message: Any) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> "dict[str, Any] | None":
        """Return the next message, None at the end.

        Raises one of UNREADABLE.
        """
        line = await self.reader.readline()
        return dict(json.loads(line.decode())) if line else None


class Agent:
    """The command of this container, and the connection to the coordinator."""

    def __init__(
        self,
        settings: "dict[str, Any]",
        address: str,
        command: "list[str]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self.command = command
        self.result: asyncio.Future[int] = loop.create_future()
        self.loop = loop
        self._child: subprocess.Popen[bytes] | None = None
        self._group = 0
        self._code: int | None = None
        """The exit code of a command whose failure has not been decided on."""
        self._is_stopping = False
        self._is_terminating = False
        self._connection: Connection | None = None
        self.is_restart, self.state = read_state(settings)
        self._coordinator = Coordinator(self, address) if settings["first"] else None

    async def run(self) -> int:
        """Return the exit code of the container."""
        for name in FORWARDED:
            self.loop.add_signal_handler(getattr(signal, name), self._forward, getattr(signal, name))
        self.loop.add_signal_handler(signal.SIGCHLD, self._reap)
        if self._coordinator:
            await self._coordinator.listen()
        talking = self.loop.create_task(self._stay_connected())
        if not self.is_restart:
            self._start()
        code = await self.result
        talking.cancel()
        return code

    def finish(self, code: int) -> None:
        """End the container."""
        self._kill(signal.SIGKILL)
        if not self.result.done():
            self.result.set_result(code)

    def save_state(self) -> None:
        """Store what the next run of this container must know. The volume lasts as long as the pod."""
        path = Path(self.settings["state"])
        new = path.with_suffix(".new")
        new.write_text(json.dumps(self.state))
        new.replace(path)

    def _start(self) -> None:
        self._code, self._is_stopping = None, False
        env = dict(os.environ)
        env[ATTEMPT] = str(self.state["attempt"])
        try:
            self._child = subprocess.Popen(self.command, env=env, start_new_session=True)
        except OSError as error:
            log(f"cannot start the command: {error}")
            self.finish(127 if isinstance(error, FileNotFoundError) else 126)
        else:
            self._group = self._child.pid

    def _reap(self) -> None:
        """Collect all ended processes: as the first process of a container, this one inherits orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._child and pid == self._child.pid:
                code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                self._child.returncode, self._child = code, None
                self._ended(OWN_EXIT_CODE if code == RESTART_EXIT_CODE else code)

    def _ended(self, code: int) -> None:
        self._kill(signal.SIGKILL)
        action = action_for(self.settings["codes"], code)
        if self._is_terminating or not (code or self._is_stopping):
            if not code:
                self._send(done=True)
            self.finish(code)
        elif self._is_stopping:
            self._send(waiting=True)
        elif not action:
            self.finish(code)
        else:
            self._code, attempt = code, self.state["attempt"]
            self._send(failed=code, action=action)
            self.loop.call_later(DECISION_SECONDS, self._give_up, attempt)

    def _give_up(self, attempt: int) -> None:
        """End the container if nobody has decided on the failure of this attempt."""
        if self._code is not None and self.state["attempt"] == attempt and not self._is_stopping:
            self.finish(self._code)

    def _stop(self) -> None:
        """Kill the command, and report that it has ended."""
        self._is_stopping = True
        if self._child is None:
            self._send(waiting=True)
            return
        child = self._child
        self._kill(signal.SIGTERM)
        self.loop.call_later(self.settings["grace"], self._kill_late, child)

    def _kill_late(self, child: "subprocess.Popen[bytes]") -> None:
        if self._child is child:
            self._kill(signal.SIGKILL)

    def _kill(self, number: signal.Signals) -> None:
        """Signal all processes of the container. Without a process namespace of its own: those of the command's session."""
        if not self._group:
            return
        try:
            if os.getpid() == 1:
                os.kill(-1, number)
            else:
                os.killpg(self._group, number)
        except ProcessLookupError:
            pass

    def _forward(self, number: signal.Signals) -> None:
        if number == signal.SIGTERM:
            self._is_terminating = True
        if self._child:
            # Not ``Popen.send_signal``: it would collect a command that has ended, and ``_reap`` would never learn of its end.
            os.kill(self._child.pid, number)
        elif number == signal.SIGTERM:
            self.finish(TERMINATED)

    def _send(self, **message: Any) -> None:
        if self._connection:
            self._connection.send(**message)

    async def _stay_connected(self) -> None:
        """Connect to the coordinator again and again. Its address outlives its containers, its name may not resolve meanwhile."""
        while True:
            hosts = (self.state.get("host"), self.settings["host"])
            for host in filter(None, hosts):
                try:
                    streams = await asyncio.wait_for(
                        asyncio.open_connection(host, self.settings["port"]), HELLO_SECONDS
                    )
                    await self._talk(Connection(*streams))
                except UNREADABLE:
                    pass
                self._connection = None
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _talk(self, connection: Connection) -> None:
        self.state["host"] = connection.writer.get_extra_info("peername")[0]
        self.save_state()
        is_running = self._child is not None
        connection.send(
            token=self.settings["token"],
            name=self.settings["name"],
            attempt=self.state["attempt"],
            running=is_running or self._code is not None,
        )
        self._connection = connection
        if self._code is not None:
            self._send(failed=self._code, action=action_for(self.settings["codes"], self._code))
        try:
            while True:
                message = await connection.receive()
                if message is None:
                    return
                self._obey(message)
        finally:
            connection.writer.close()

    def _obey(self, message: "dict[str, Any]") -> None:
        if "go" in message:
            if self._child is None:
                self.state.update(attempt=int(message["go"]))
                self.save_state()
                self._start()
        elif "stop" in message:
            self._stop()
        elif "report" in message:
            self._report(message["report"])
        elif "end" in message:
            last = self.state.get("code", TERMINATED)
            self.finish(last if self._code is None else self._code)

    def _report(self, report: "dict[str, Any]") -> None:
        """End the container so that the kubelet restarts it. The termination message says why."""
        path = Path(self.settings["log"])
        try:
            report["message"] = path.read_text(errors="replace")[-LONGEST_MESSAGE:]
            path.write_text(report_text(report))
            self.state["code"] = self._code
            self.save_state()
        except OSError as error:
            log(f"cannot restart in place: {error}")
            self.finish(self._code or TERMINATED)
        else:
            self.finish(RESTART_EXIT_CODE)


class Coordinator:
    """Decides on failures, and starts each attempt when all agents wait for it."""

    def __init__(self, agent: Agent, address: str) -> None:
        self._agent = agent
        self._address = address
        self._members: dict[str, Connection] = {}
        self._is_restarting = agent.is_restart
        self._is_over = False
        """Whether a command has succeeded: the job can no longer restart in place."""
        self._timer: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None

    async def listen(self) -> None:
        try:
            await asyncio.start_server(self._serve, self._address, self._agent.settings["port"], backlog=4096)
        except OSError as error:
            log(f"cannot restart in place: {error}")
        if self._is_restarting:
            self._begin_limit()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        member, name = Connection(reader, writer), ""
        try:
            hello = await asyncio.wait_for(member.receive(), HELLO_SECONDS) or {}
            if not hmac.compare_digest(str(hello["token"]), self._agent.settings["token"]):
                return
            name, attempt = str(hello["name"]), int(hello["attempt"])
            member.is_waiting = not hello["running"]
            if name in self._members:
                self._members[name].writer.close()
            self._members[name] = member
            is_current = attempt == self._agent.state["attempt"]
            if self._is_restarting or not (member.is_waiting or is_current):
                member.send(stop=True)
            elif member.is_waiting:
                self._start(member)
            for other in [other for other in self._members.values() if other.failed[0]]:
                self._decide(other)
            self._go_if_ready()
            while True:
                message = await member.receive()
                if message is None:
                    return
                self._handle(member, message)
        except UNREADABLE:
            pass
        finally:
            if self._members.get(name) is member:
                del self._members[name]
            writer.close()

    def _handle(self, member: Connection, message: "dict[str, Any]") -> None:
        if "waiting" in message:
            member.is_waiting = True
            if not self._is_restarting:
                self._start(member)
            self._go_if_ready()
        elif "done" in message:
            self._is_over = True
            if self._is_restarting:
                self._end()
        elif "failed" in message:
            member.failed = int(message["failed"]), str(message["action"])
            self._decide(member)

    def _decide(self, member: Connection) -> None:
        """Decide on a failure, unless an agent is missing: then it waits, and its agent gives up after a while."""
        code, action = member.failed
        maximum = self._agent.settings["max"]
        has_restarts_left = maximum is None or self._agent.state["counted"] < maximum
        if self._is_restarting:
            member.send(stop=True)
        elif self._is_over or not (action == "uncounted" or has_restarts_left):
            member.send(end=True)
        elif self._is_complete():
            self._restart(member, code, action)

    def _is_complete(self) -> bool:
        count: int = self._agent.settings["members"]
        return len(self._members) == count

    def _restart(self, failed: Connection, code: int, action: str) -> None:
        state, settings, now = self._agent.state, self._agent.settings, time.time()
        lasted = now - state["began"]
        state["row"] = 1 if lasted >= settings["reset"] else state["row"] + 1
        pause = settings["pauses"][min(state["row"], len(settings["pauses"])) - 1]
        pause = round(pause * random.uniform(1.0, 1.0 + settings["jitter"]))
        state["counted"] += action == "counted"
        state["resume"] = now + pause
        self._agent.save_state()
        self._is_restarting = True
        log(f"attempt {state['attempt']} failed with exit code {code}, restarting in place")
        for member in self._members.values():
            if member is not failed:
                member.send(stop=True)
        failed.send(
            report={
                "attempt": state["attempt"],
                "exitCode": code,
                "counted": state["counted"],
                "pauseSeconds": pause,
            }
        )
        self._begin_limit()

    def _begin_limit(self) -> None:
        self._limit = self._agent.loop.call_later(self._pause() + RESTART_SECONDS, self._end)

    def _pause(self) -> float:
        resume: float = self._agent.state.get("resume", 0.0)
        return max(resume - time.time(), 0.0)

    def _go_if_ready(self) -> None:
        if not (self._is_restarting and self._is_complete()):
            return
        if not all(member.is_waiting for member in self._members.values()):
            return
        if self._timer:
            self._timer.cancel()
        if self._pause():
            self._timer = self._agent.loop.call_later(self._pause(), self._go_if_ready)
            return
        self._is_restarting = False
        if self._limit:
            self._limit.cancel()
        state = self._agent.state
        state.update(attempt=state["attempt"] + 1, began=time.time())
        self._agent.save_state()
        log(f"attempt {state['attempt']} begins")
        for member in self._members.values():
            self._start(member)

    def _start(self, member: Connection) -> None:
        member.is_waiting, member.failed = False, (0, "")
        member.send(go=self._agent.state["attempt"])

    def _end(self) -> None:
        """End all containers, so that the operator restarts the job by recreation."""
        log("cannot restart in place: the containers end")
        for member in self._members.values():
            member.send(end=True)
        self._agent.loop.call_later(1, self._agent.finish, self._agent.state.get("code", TERMINATED))


def read_state(settings: "dict[str, Any]") -> "tuple[bool, dict[str, Any]]":
    """Return whether the container has run before in this pod, and the state that run left."""
    try:
        return True, json.loads(Path(settings["state"]).read_text())
    except FileNotFoundError:
        given = {"attempt": settings["attempt"], "counted": settings["counted"]}
        return False, dict(given, row=0, began=time.time())


def report_text(report: "dict[str, Any]") -> str:
    """Return a report as a termination message, with as much of the end of its own message as fits."""
    text = json.dumps({"rallypoint": report})
    while len(text) > LONGEST_REPORT and report["message"]:
        # JSON escapes have at most twelve characters.
        report["message"] = report["message"][1 + (len(text) - LONGEST_REPORT) // 12 :]
        text = json.dumps({"rallypoint": report})
    return text


def action_for(ranges: "list[tuple[int, int, str]]", code: int) -> str:
    """Return ``counted`` or ``uncounted`` for an exit code that restarts the job, empty for others."""
    return next((action for first, last, action in ranges if first <= code <= last), "")


def enable_keepalive(connected: socket.socket) -> None:
    """Notice within a minute that the other end is gone without a word, as when its node loses power."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def log(text: str) -> None:
    sys.stderr.write(f"rallypoint: {text}\n")
    sys.stderr.flush()


def main() -> None:
    settings = json.loads(os.environ.pop(SETTINGS))
    address = os.environ.pop(ADDRESS)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        agent = Agent(settings, address, sys.argv[1:], loop)
        agent.save_state()
    except (OSError, ValueError) as error:
        log(f"cannot restart in place: {error}")
        os.execvp(sys.argv[1], sys.argv[1:])
    code = loop.run_until_complete(agent.run())
    os._exit(code)  # Not through the loop's shutdown, which would wait for connections.


if __name__ == "__main__":
    main()
