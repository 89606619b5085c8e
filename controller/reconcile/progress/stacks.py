"""Collects what the processes of silent pods do, as evidence before the job ends or restarts.

A shell script in each pod lists the processes of the container with their states. Of Python programs it prints the stacks with py-spy, if
the image has it and the pod may trace processes. Otherwise it sends the signal of ``progress.stackSignal`` to those that handle it, and
``faulthandler`` writes the stacks into the log.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp

from api.progress import LogProgress
from controller.kube import errors, remote_command
from controller.kube.client import Client
from controller.policy.hangs import ObservedJob, RunningPod, excerpt
from controller.reconcile.progress.sources import LastLine, Unread, log_of

MOST_PODS: Final = 64
"""How many pods are asked, those silent the longest first."""
PODS_AT_ONCE: Final = 16
POD_SECONDS: Final = 10.0
"""The time limit for one pod, its connection included."""
ALL_SECONDS: Final = 25.0
"""The time limit for a job; what has been collected by then is kept."""
SIGNAL_SECONDS: Final = 1.0
"""The time for a program to write its stacks, and for the node to write its log."""
MOST_BYTES: Final = 256 * 1024
_SIGNALS: Final = {"SIGUSR1": 10, "SIGUSR2": 12}
"""The numbers on all processors that Linux runs on here."""
_DUMP: Final = ("Current thread ", "Thread 0x", '  File "')
"""How the lines of ``faulthandler`` begin."""
SIGNALED: Final = "signaled"
SCRIPT: Final = r"""
signal=$1
own=$(readlink /proc/self/ns/mnt)
shown=0
for folder in /proc/[0-9]*; do
  pid=${folder#/proc/}
  [ "$pid" = $$ ] && continue
  [ "$(readlink "$folder/ns/mnt" 2>/dev/null)" = "$own" ] || continue
  if [ -n "$RALLYPOINT_POD" ]; then
    tr '\0' '\n' 2>/dev/null < "$folder/environ" | grep -qx "RALLYPOINT_POD=$RALLYPOINT_POD" || continue
  fi
  name= state= parent= caught=
  while read -r key value rest; do
    case $key in
      Name:) name=$value ;;
      State:) state=$rest ;;
      PPid:) parent=$value ;;
      SigCgt:) caught=$value ;;
    esac
  done 2>/dev/null < "$folder/status"
  [ -z "$name" ] || [ "$parent" = $$ ] && continue
  state=${state#(}
  echo "process $pid, ${state%)}: $name"
  shown=$((shown + 1))
  [ $shown -lt 32 ] || break
  case $name in
    python*|pt_main*|ray*)
      command -v py-spy > /dev/null && timeout 5 py-spy dump --nonblocking --pid "$pid" 2>/dev/null && continue ;;
  esac
  [ -n "$signal" ] || continue
  tr '\0' '\n' 2>/dev/null < "$folder/environ" | grep -q '^RALLYPOINT_AGENT=' && continue
  mask=$((0x0${caught#????????}))
  [ $((mask >> (signal - 1) & 1)) = 1 ] && kill -"$signal" "$pid" && echo signaled
done
"""
"""Prints the processes of this container: its mount namespace tells them from those of others, and in local mode a variable. A process that
does not handle the signal would end by it, so the script reads which signals it catches. The agent of a restart in place handles them only to
pass them on to its command, so it gets none. The script prints no command lines: they may contain secrets.
"""


class StackCollector:
    """Collects the stacks of one job's pods at a time, of several jobs at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._free = asyncio.Semaphore(PODS_AT_ONCE)

    async def collect(self, job: ObservedJob, pods: Sequence[RunningPod]) -> tuple[dict[str, str], str]:
        """Return the stacks by the pods' UIDs, and why there are none; empty if there are."""
        found: dict[str, str] = {}
        refusals: list[Exception] = []
        try:
            async with asyncio.timeout(ALL_SECONDS), asyncio.TaskGroup() as group:
                for pod in pods[:MOST_PODS]:
                    group.create_task(self._collect(job, pod, found, refusals))
        except TimeoutError:
            pass
        return found, f"no stacks: {errors.describe(refusals[0])}" if refusals and not found else ""

    async def _collect(
        self, job: ObservedJob, pod: RunningPod, found: dict[str, str], refusals: list[Exception]
    ) -> None:
        async with self._free:
            if any(isinstance(refusal, errors.Forbidden) for refusal in refusals):
                return
            try:
                async with asyncio.timeout(POD_SECONDS):
                    dump = await self._dump(job, pod)
                found[pod.uid] = excerpt(dump) or "no processes"
            except TimeoutError:
                found[pod.uid] = f"no answer within {POD_SECONDS:.0f} s"
            except (remote_command.CommandError, errors.ApiError, aiohttp.ClientError, OSError) as error:
                refusals.append(error)

    async def _dump(self, job: ObservedJob, pod: RunningPod) -> str:
        logs = job.progress.logs or LogProgress()
        container = logs.container or pod.container
        signal = job.progress.stack_signal
        number = str(_SIGNALS[signal]) if signal else ""
        before = await self._last_line(job, pod, container) if signal else None
        output = await remote_command.run(
            self._client,
            job.namespace,
            pod.name,
            container,
            ["sh", "-c", SCRIPT, "sh", number],
            timeout_seconds=POD_SECONDS,
            most_bytes=MOST_BYTES,
        )
        if output is None:
            raise TimeoutError
        text = output.stdout.decode(errors="replace")
        lines = [line for line in text.splitlines() if line != SIGNALED]
        if before is not None and len(lines) < len(text.splitlines()):
            await asyncio.sleep(SIGNAL_SECONDS)
            lines += await self._written(job, pod, container, before)
        return "\n".join(lines)

    async def _last_line(self, job: ObservedJob, pod: RunningPod, container: str) -> str | None:
        """Return the timestamp of the pod's last line, empty if there is none; None if the log cannot be read."""
        try:
            last = await LastLine(self._client, LogProgress(container=container)).read(job.namespace, pod)
        except (Unread, errors.ApiError, aiohttp.ClientError, OSError):
            return None
        return last.token

    async def _written(self, job: ObservedJob, pod: RunningPod, container: str, before: str) -> list[str]:
        """Return what ``faulthandler`` has written into the log since."""
        options = {"tailLines": "1000", "limitBytes": str(MOST_BYTES), "sinceTime": before}
        try:
            answer = await log_of(self._client, job.namespace, pod, container, options)
        except (errors.ApiError, aiohttp.ClientError, OSError):
            return []
        lines = [line.partition(" ") for line in answer.decode(errors="replace").splitlines()]
        last = max((at for at, (stamp, _, _) in enumerate(lines) if stamp == before), default=-1)
        return [text for _, _, text in lines[last + 1 :] if text.startswith(_DUMP)]
