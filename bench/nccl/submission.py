"""One job from its submission to its deletion, with the log of its first rank."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from api.labels import JOB_NAME
from api.meta import CONFIG_MAPS, PODS, Resource
from bench.nccl import failure_analysis, job_state, worker_files
from bench.nccl.cluster import Cluster
from bench.nccl.log_parser import LogParser
from controller.kube.errors import ApiError, NotFound, ServerError, TooManyRequests

RESOURCES = {
    "pytorchjob": Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    "mpijob": Resource("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
}
POLL_SECONDS = 0.5
"""Interval for reading job and pods."""
PENDING_REPORT_SECONDS = 3.0
"""A start that is pending for longer is reported."""
ERROR_GRACE_SECONDS = 5.0
"""Time for the first rank to report an error after another rank has died."""
MAX_ERRORS = 4
"""Errors of ranks in the message; others are counted."""
MAX_LOGS, TAIL_LINES = 64, 200
"""Number of pods whose logs are searched for ranks that died, and number of lines."""
MAX_READ_FAILURES = 10
"""Consecutive failures to read the log of a pod that has ended."""
UNREACHABLE_SECONDS = 300.0
"""A run fails after the cluster has not answered for this time."""
REMOVAL_SECONDS = 90.0
_UNAVAILABLE = (ServerError, TooManyRequests, aiohttp.ClientError, TimeoutError)
"""Errors while a control plane is unavailable."""


class RunFailed(Exception):
    """The run ended early. The text says why."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    start_seconds: float = 600.0
    """Time until the first rank's container runs."""
    run_seconds: float = 3600.0
    """Time from then on."""


class Submission:
    """The job of one run. ``progress`` gets lines for people."""

    def __init__(
        self, cluster: Cluster, log_parser: LogParser, timeouts: Timeouts, progress: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._log_parser = log_parser
        self._via = log_parser.config.via
        self._resource = RESOURCES[self._via]
        self._timeouts = timeouts
        self._progress = progress
        self._last_pending_reason = ""
        self._created: list[Resource] = []
        """Resources to delete."""
        self._lines_read: dict[str, int] = {}
        """Pod UID → lines of its log that were read before the connection broke."""

    async def run(self, job: dict[str, Any], task: dict[str, Any]) -> str:
        """Submit the job, read its log, delete it. Return why the run is partial (empty if it is complete).

        Raises:
            ApiError: the API server rejects the job.
        """
        name = job["metadata"]["name"]
        try:
            await self._submit(name, job, task)
            await self._wait_until_done(name)
        except RunFailed as broken:
            return str(broken)
        finally:
            # Also after a cancellation: the job must not stay in the cluster.
            await asyncio.shield(self._remove(name))
        return ""

    async def _submit(self, name: str, job: dict[str, Any], task: dict[str, Any]) -> None:
        namespace = self._cluster.namespace
        await self._create(CONFIG_MAPS, worker_files.config_map(name, task))
        created = orjson.loads(await self._create(self._resource, job))
        owner = {
            "apiVersion": self._resource.api_version,
            "kind": self._resource.kind,
            "name": name,
            "uid": created["metadata"]["uid"],
        }
        owned = orjson.dumps({"metadata": {"ownerReferences": [owner]}})
        await self._client.patch(CONFIG_MAPS, namespace, name, owned)
        self._progress(f"{self._resource.kind} {namespace}/{name} on {self._cluster.json_schema}")

    async def _create(self, resource: Resource, wanted: dict[str, Any]) -> bytes:
        self._created.append(resource)
        try:
            return await self._client.create(resource, self._cluster.namespace, orjson.dumps(wanted))
        except ServerError:
            raise  # It may exist anyway.
        except ApiError:
            self._created.remove(resource)  # It was not created, or another owner has it.
            raise

    async def _wait_until_done(self, name: str) -> None:
        """Return when the worker is done. Raises RunFailed if it does not finish."""
        try:
            async with asyncio.TaskGroup() as tasks:
                log_task = tasks.create_task(self._follow_log(name))
                job_task = tasks.create_task(self._watch_job(name))
                stop_task = tasks.create_task(self._cluster.stop.wait())
                await asyncio.wait((log_task, job_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
                if not (self._log_parser.is_complete or stop_task.done()):
                    # One task sees that a pod failed, the other reads why; wait for both.
                    await asyncio.wait((log_task, job_task), timeout=ERROR_GRACE_SECONDS)
                for task in (log_task, job_task, stop_task):
                    task.cancel()
        except* RunFailed as broken:
            raise broken.exceptions[0] from None
        if self._log_parser.is_complete:
            return
        found = [task.result() for task in (job_task, log_task) if not task.cancelled()]
        raise RunFailed(
            self._failure_message([*await self._silent_ranks(name), *found[:1]]) if found else "interrupted"
        )

    async def _silent_ranks(self, name: str) -> list[str]:
        """Return the ranks that died without reporting an error, as far as the logs show."""
        lines, pods = list[str](), list[dict[str, Any]]()
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
            pods = await self._pods(name)
        for pod in pods[:MAX_LOGS]:
            path = PODS.path(self._cluster.namespace, pod["metadata"]["name"], "log")
            query = {"tailLines": str(TAIL_LINES), "container": pod["spec"]["containers"][0]["name"]}
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
                log = await self._client.request("GET", path, params=query, accept="*/*")
                lines += log.decode(errors="replace").splitlines()
        return failure_analysis.silent_ranks(lines)

    def _failure_message(self, found: list[str]) -> str:
        """Combine what the ranks reported with what the pods show; without a report, add the end of the log."""
        errors, last_lines = self._log_parser.errors, self._log_parser.last_lines
        words = [*filter(None, found), *errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            words.append(f"and {len(errors) - MAX_ERRORS} more")
        if not errors and last_lines:
            words.append("\n".join(["the log ends with:", *last_lines]))
        return "; ".join(dict.fromkeys(words))

    async def _watch_job(self, name: str) -> str:
        """Return why the job can produce no more output, once that is so."""
        loop = asyncio.get_running_loop()
        since, has_started = loop.time(), False
        while True:
            job, pods = await self._fetch(name)
            if why := job_state.failure_reason(self._via, job, pods):
                return why
            first_pod = job_state.first_rank_pod(self._via, pods)
            if not has_started and first_pod is not None and job_state.has_log(first_pod):
                has_started, since = True, loop.time()
            waited, limit = loop.time() - since, self._timeouts
            if has_started and waited > limit.run_seconds:
                return f"not done after {limit.run_seconds:g} s"
            if not has_started:
                reason = job_state.pending_reason(job, pods)
                if waited > PENDING_REPORT_SECONDS:
                    self._report_pending(reason)
                if waited > limit.start_seconds:
                    return f"not started within {limit.start_seconds:g} s: {reason}"
            await asyncio.sleep(POLL_SECONDS)

    def _report_pending(self, reason: str) -> None:
        if reason != self._last_pending_reason:
            self._progress(f"waiting: {reason}")
            self._last_pending_reason = reason

    async def _fetch(self, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return job and pods; retry for a while if the cluster does not answer."""
        loop = asyncio.get_running_loop()
        config = loop.time()
        while True:
            try:
                job = orjson.loads(await self._client.get(self._resource, self._cluster.namespace, name))
                pods = await self._pods(name)
                self._log_parser.nodes |= job_state.nodes_by_host(pods)
                return job, pods
            except NotFound:
                raise RunFailed("the job was deleted") from None
            except _UNAVAILABLE as error:
                if loop.time() - config > UNREACHABLE_SECONDS:
                    raise RunFailed(
                        f"the cluster has not answered for {UNREACHABLE_SECONDS:g} s: {error}"
                    ) from error
                await asyncio.sleep(POLL_SECONDS)
            except ApiError as error:
                raise RunFailed(f"the cluster refuses to show the job: {error.message}") from error

    async def _pods(self, name: str) -> list[dict[str, Any]]:
        found = await self._client.list(PODS, self._cluster.namespace, label_selector=f"{JOB_NAME}={name}")
        pods: list[dict[str, Any]] = orjson.loads(found)["items"] or []
        return pods

    async def _follow_log(self, name: str) -> str:
        """Read the first rank's log until the worker is done or the pod ends."""
        failed = 0
        while True:
            _, pods = await self._fetch(name)
            pod = job_state.first_rank_pod(self._via, pods)
            if pod is not None and job_state.has_log(pod):
                pod_name = f"pod {pod['metadata']['name']}"
                try:
                    await self._read(pod)
                    if self._log_parser.is_complete:
                        return ""
                    if job_state.has_ended(pod):
                        return f"{pod_name} has ended before the worker was done"
                    failed = 0
                except (aiohttp.ClientError, TimeoutError, ApiError) as error:
                    failed += 1
                    if job_state.has_ended(pod) and failed >= MAX_READ_FAILURES:
                        return f"{pod_name} has ended, and its log cannot be read: {error}"
            await asyncio.sleep(POLL_SECONDS)

    async def _read(self, pod: job_state.Pod) -> None:
        """Follow a log from the last line that was read."""
        metadata, number = pod["metadata"], 0
        uid = metadata["uid"]
        container = pod["spec"]["containers"][0]["name"]
        path = PODS.path(metadata["namespace"], metadata["name"], "log")
        query = {"follow": "true", "container": container}
        async with self._client.stream(path, query, accept="*/*", endless=True) as stream:
            while line := await stream.readline():
                number += 1
                if number <= self._lines_read.get(uid, 0):
                    continue
                self._lines_read[uid] = number
                if text := self._log_parser.feed(line.decode(errors="replace")):
                    self._progress(text)
                if self._log_parser.is_complete:
                    break

    async def _remove(self, name: str) -> None:
        """Delete the objects and wait until the pods are gone, so that their GPUs are free."""
        loop, why = asyncio.get_running_loop(), ""
        until = loop.time() + REMOVAL_SECONDS
        while loop.time() < until:
            try:
                for resource in self._created:
                    with contextlib.suppress(NotFound):
                        await self._client.delete(
                            resource, self._cluster.namespace, name, propagation="Background"
                        )
                if self._resource not in self._created or not await self._pods(name):
                    return
                why = "its pods still exist"
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                why = str(error)
            await asyncio.sleep(POLL_SECONDS)
        self._progress(f"{self._resource.kind} {name} still exists after {REMOVAL_SECONDS:g} s: {why}")
