"""One job from its submission to its removal, and all that its first rank says meanwhile."""

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
from bench.nccl.log_parser import Gathering
from controller.kube.errors import ApiError, NotFound, ServerError, TooManyRequests

RESOURCES = {
    "pytorchjob": Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    "mpijob": Resource("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
}
LOOK_SECONDS = 0.5
"""How often job and pods are looked at."""
PATIENT_SECONDS = 3.0
"""What a start waits for is told after that."""
LAST_WORDS_SECONDS = 5.0
"""For the first rank to say why, after another one has died."""
MOST_ERRORS = 4
"""Of what ranks have said when another one was gone."""
MOST_LOGS, LAST_LINES = 64, 200
"""So many pods' logs are searched for ranks that died without a word, so many lines of each."""
MOST_FAILURES = 10
"""In a row, to read the log of a pod that has ended."""
SILENT_SECONDS = 300.0
"""Of the cluster, after which a run is given up."""
REMOVAL_SECONDS = 90.0
_AWAY = (ServerError, TooManyRequests, aiohttp.ClientError, TimeoutError)
"""What a cluster says, or does not, while its control plane is away."""


class Broken(Exception):
    """The run is over before its end. The text says why."""


@dataclass(frozen=True, slots=True)
class Patience:
    start_seconds: float = 600.0
    """Until the first rank's container runs."""
    run_seconds: float = 3600.0
    """From then on."""


class Submission:
    """A job of one run. ``news`` gets lines for a person."""

    def __init__(
        self, cluster: Cluster, gathering: Gathering, patience: Patience, news: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._gathering = gathering
        self._via = gathering.asked.via
        self._resource = RESOURCES[self._via]
        self._patience = patience
        self._news = news
        self._said_of_waiting = ""
        self._ours: list[Resource] = []
        """What is to be removed."""
        self._taken: dict[str, int] = {}
        """How many lines of a pod's log were read before the connection broke, by its uid."""

    async def run(self, job: dict[str, Any], task: dict[str, Any]) -> str:
        """Submit, listen, remove. Why the run is partial; empty when the worker has said all.

        Raises:
            ApiError: the cluster refuses the job.
        """
        name = job["metadata"]["name"]
        try:
            await self._submit(name, job, task)
            await self._to_the_end(name)
        except Broken as broken:
            return str(broken)
        finally:
            # Also when cancelled: nothing of ours stays in the cluster.
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
        self._news(f"{self._resource.kind} {namespace}/{name} on {self._cluster.described}")

    async def _create(self, resource: Resource, wanted: dict[str, Any]) -> bytes:
        self._ours.append(resource)
        try:
            return await self._client.create(resource, self._cluster.namespace, orjson.dumps(wanted))
        except ServerError:
            raise  # It may have been made all the same.
        except ApiError:
            self._ours.remove(resource)  # It was not made, or is somebody else's and stays.
            raise

    async def _to_the_end(self, name: str) -> None:
        """Raises Broken unless the worker says that it has done everything."""
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._listen(name))
                losing = tasks.create_task(self._lost(name))
                stopping = tasks.create_task(self._cluster.stop.wait())
                await asyncio.wait((listening, losing, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not (self._gathering.is_whole or stopping.done()):
                    # The one has seen that a pod is lost, the other hears why, whichever comes first.
                    await asyncio.wait((listening, losing), timeout=LAST_WORDS_SECONDS)
                for task in (listening, losing, stopping):
                    task.cancel()
        except* Broken as broken:
            raise broken.exceptions[0] from None
        if self._gathering.is_whole:
            return
        found = [one.result() for one in (losing, listening) if not one.cancelled()]
        raise Broken(self._why([*await self._silent(name), *found[:1]]) if found else "interrupted")

    async def _silent(self, name: str) -> list[str]:
        """Ranks that have died without a word, as far as the ends of some pods' logs tell."""
        lines, pods = list[str](), list[dict[str, Any]]()
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
            pods = await self._pods(name)
        for pod in pods[:MOST_LOGS]:
            path = PODS.path(self._cluster.namespace, pod["metadata"]["name"], "log")
            query = {"tailLines": str(LAST_LINES), "container": pod["spec"]["containers"][0]["name"]}
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
                said = await self._client.request("GET", path, params=query, accept="*/*")
                lines += said.decode(errors="replace").splitlines()
        return failure_analysis.silent(lines)

    def _why(self, found: list[str]) -> str:
        """What ranks have said themselves, what has been seen of them, and else what the log ends with."""
        errors, said = self._gathering.errors, self._gathering.last_words
        words = [*filter(None, found), *errors[:MOST_ERRORS]]
        if len(errors) > MOST_ERRORS:
            words.append(f"and {len(errors) - MOST_ERRORS} more")
        if not errors and said:
            words.append("\n".join(["the log ends with:", *said]))
        return "; ".join(dict.fromkeys(words))

    async def _lost(self, name: str) -> str:
        """Why nothing more is to come, once that is so."""
        loop = asyncio.get_running_loop()
        since, has_started = loop.time(), False
        while True:
            job, pods = await self._look(name)
            if why := job_state.lost(self._via, job, pods):
                return why
            spoken = job_state.first(self._via, pods)
            if not has_started and spoken is not None and job_state.speaks(spoken):
                has_started, since = True, loop.time()
            waited, limit = loop.time() - since, self._patience
            if has_started and waited > limit.run_seconds:
                return f"it is not done after {limit.run_seconds:g} s"
            if not has_started:
                reason = job_state.waiting_for(job, pods)
                if waited > PATIENT_SECONDS:
                    self._tell_waiting(reason)
                if waited > limit.start_seconds:
                    return f"it has not started within {limit.start_seconds:g} s: {reason}"
            await asyncio.sleep(LOOK_SECONDS)

    def _tell_waiting(self, reason: str) -> None:
        if reason != self._said_of_waiting:
            self._news(f"waiting: {reason}")
            self._said_of_waiting = reason

    async def _look(self, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Job and pods; an answer that fails to come is asked for again, for a while."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        while True:
            try:
                job = orjson.loads(await self._client.get(self._resource, self._cluster.namespace, name))
                pods = await self._pods(name)
                self._gathering.nodes |= job_state.nodes(pods)
                return job, pods
            except NotFound:
                raise Broken("somebody has deleted the job") from None
            except _AWAY as error:
                if loop.time() - asked > SILENT_SECONDS:
                    raise Broken(f"the cluster has not answered for {SILENT_SECONDS:g} s: {error}") from error
                await asyncio.sleep(LOOK_SECONDS)
            except ApiError as refusal:
                raise Broken(f"the cluster refuses to show the job: {refusal.message}") from refusal

    async def _pods(self, name: str) -> list[dict[str, Any]]:
        found = await self._client.list(PODS, self._cluster.namespace, label_selector=f"{JOB_NAME}={name}")
        pods: list[dict[str, Any]] = orjson.loads(found)["items"] or []
        return pods

    async def _listen(self, name: str) -> str:
        """Take in the first rank's log until it says that it has done, or ends without."""
        failed = 0
        while True:
            _, pods = await self._look(name)
            pod = job_state.first(self._via, pods)
            if pod is not None and job_state.speaks(pod):
                called = f"pod {pod['metadata']['name']}"
                try:
                    await self._read(pod)
                    if self._gathering.is_whole:
                        return ""
                    if job_state.has_ended(pod):
                        return f"{called} has ended before the worker was done"
                    failed = 0
                except (aiohttp.ClientError, TimeoutError, ApiError) as error:
                    failed += 1
                    if job_state.has_ended(pod) and failed >= MOST_FAILURES:
                        return f"{called} has ended, and its log cannot be read: {error}"
            await asyncio.sleep(LOOK_SECONDS)

    async def _read(self, pod: job_state.Pod) -> None:
        """Follow a log from where it was left."""
        metadata, number = pod["metadata"], 0
        uid = metadata["uid"]
        container = pod["spec"]["containers"][0]["name"]
        path = PODS.path(metadata["namespace"], metadata["name"], "log")
        query = {"follow": "true", "container": container}
        async with self._client.stream(path, query, accept="*/*", endless=True) as stream:
            while line := await stream.readline():
                number += 1
                if number <= self._taken.get(uid, 0):
                    continue
                self._taken[uid] = number
                if news := self._gathering.take(line.decode(errors="replace")):
                    self._news(news)
                if self._gathering.is_whole:
                    break

    async def _remove(self, name: str) -> None:
        """Delete what is ours and wait until the pods are gone, so that their GPUs are free."""
        loop, why = asyncio.get_running_loop(), ""
        until = loop.time() + REMOVAL_SECONDS
        while loop.time() < until:
            try:
                for resource in self._ours:
                    with contextlib.suppress(NotFound):
                        await self._client.delete(
                            resource, self._cluster.namespace, name, propagation="Background"
                        )
                if self._resource not in self._ours or not await self._pods(name):
                    return
                why = "its pods are still there"
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                why = str(error)
            await asyncio.sleep(LOOK_SECONDS)
        self._news(f"{self._resource.kind} {name} is not gone after {REMOVAL_SECONDS:g} s: {why}")
