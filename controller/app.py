"""The one file that knows all parts: it builds the service from settings, starts it and stops it."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from api.children import Pod, Service, pod_from_json, service_from_json
from api.labels import JOB_NAME
from api.meta import PODS, SERVICES, Resource
from controller import kinds
from controller.domain import Key
from controller.kind import JobKind, Options
from controller.kinds.pytorch import from_template
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.kube.connect import Connection
from controller.kube.limiter import TokenBucket
from controller.reconcile import triggers
from controller.reconcile.apply import Cache
from controller.reconcile.jobs import JobRow, job_from_json
from controller.reconcile.observe import owner_uid
from controller.reconcile.reconciler import Reconciler
from controller.reconcile.telling import Teller
from controller.runtime.informer import Informer
from controller.runtime.queue import Queue
from controller.runtime.recorder import Recorder
from controller.runtime.workers import Workers
from controller.server.http import serving
from controller.settings import Settings
from controller.telemetry.metrics import Metrics

FLUSH_SECONDS = 5.0
"""How long the last events may take to be sent when the service stops."""

log = structlog.get_logger()


class UnknownKind(ValueError):
    """``--enable-scheme`` names a kind that is not served."""


class BadTemplate(Exception):
    """The file of ``--pytorch-init-container-template-file`` cannot be used."""


def chosen(names: Iterable[str]) -> tuple[JobKind[Any], ...]:
    """The kinds of those names, without regard to case; all if there are none.

    Raises:
        UnknownKind: a name is none of ours.
    """
    by_name = {kind.resource.kind.lower(): kind for kind in kinds.ALL}
    given = list(names)
    for name in given:
        if name.lower() not in by_name:
            served = ", ".join(kind.resource.kind for kind in kinds.ALL)
            raise UnknownKind(f"--enable-scheme {name}: not a kind that is served (which are: {served})")
    return tuple(by_name[name] for name in dict.fromkeys(map(str.lower, given))) or kinds.ALL


def options_from(settings: Settings) -> Options:
    """What decisions need to know of the settings; reads the template file if there is one.

    Raises:
        BadTemplate: that file is missing though it was named, or makes no containers. Told now, not by each job.
    """
    path = settings.pytorch_init_container_template_file
    options = Options(
        init_container=settings.pytorch_init_container,
        init_container_image=settings.pytorch_init_container_image,
        init_container_max_tries=settings.pytorch_init_container_max_tries,
        max_replicas=settings.max_replicas,
    )
    if path == Settings.pytorch_init_container_template_file and not Path(path).exists():
        return options
    try:
        options = replace(options, init_container_template=Path(path).read_text(encoding="utf-8"))
        from_template(options, address="master")
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise BadTemplate(f"--pytorch-init-container-template-file {path}: {text}") from error
    return options


@dataclass(frozen=True)
class _Controller:
    """The parts of one kind."""

    jobs: Informer[JobRow]
    queue: Queue[Key]
    workers: Workers[Key]


async def run(
    settings: Settings, connection: Connection, *, on_ready: Callable[[], None] | None = None
) -> None:
    """The whole controller on the running loop, until cancelled.

    Raises:
        UnknownKind: the settings name a kind that is not served.
        BadTemplate: the template of init containers that the settings name cannot be used.
        OSError: an address to serve on is taken.
    """
    served, options = chosen(settings.enable_scheme), options_from(settings)
    registry = CollectorRegistry()
    metrics = Metrics(registry, version("rallypoint"))
    observer = metrics.requests(urlsplit(connection.server).netloc)
    limiter = TokenBucket(settings.kube_api_qps, settings.kube_api_burst) if settings.kube_api_qps else None
    in_flight = settings.kube_api_in_flight
    async with Client(connection, in_flight=in_flight, limiter=limiter, observer=observer) as client:
        metrics.gate(client.gate)
        recorder = Recorder(client, enabled=settings.events != "off")
        teller = Teller(recorder, compact=settings.events == "compact")
        queues = {kind.resource.kind: Queue[Key]() for kind in served}
        pods, services = _children(client, settings.namespace, queues)
        caches = {
            PODS: Cache(pods.store, pod_from_json),
            SERVICES: Cache(services.store, service_from_json),
        }
        controllers = [
            _controller(kind, queues[kind.resource.kind], client, caches, teller, metrics, settings, options)
            for kind in served
        ]
        informers: list[Informer[Any]] = [pods, services, *(one.jobs for one in controllers)]
        for informer in informers:
            metrics.watch(informer.resource.plural, informer.silent_seconds)
        metrics.events(lambda: recorder.dropped)
        await _serve(settings, registry, informers, controllers, recorder, on_ready)


async def _serve(
    settings: Settings,
    registry: CollectorRegistry,
    informers: list[Informer[Any]],
    controllers: list[_Controller],
    recorder: Recorder,
    on_ready: Callable[[], None] | None,
) -> None:
    def alive() -> str:
        # Answering is all there is to it. Without an API server a restart would help nothing and empty the caches; how long it
        # has been silent is a metric.
        return ""

    def ready() -> str:
        # Once ready it stays so: nothing is routed by it that a silent API server should turn away, and whoever scrapes through
        # the Service wants the metrics just then.
        waiting = [one.resource.plural for one in informers if not one.synced.is_set()]
        return f"caches are being filled: {', '.join(waiting)}" if waiting else ""

    async with (
        serving(settings.metrics_bind_address, settings.health_probe_bind_address, registry, alive, ready),
        asyncio.TaskGroup() as group,
    ):
        sending = group.create_task(recorder.run())
        for informer in informers:
            group.create_task(informer.run())
        # No job is worked on before all caches are filled: a half-filled one would make children look lost.
        await asyncio.gather(*(informer.synced.wait() for informer in informers))
        log.info("caches filled, working", kinds=[one.jobs.resource.kind for one in controllers])
        if on_ready:
            on_ready()
        try:
            async with asyncio.TaskGroup() as working:
                for controller in controllers:
                    working.create_task(controller.workers.run())
        finally:
            await _flush(recorder, sending)


async def _flush(recorder: Recorder, sending: "asyncio.Task[None]") -> None:
    """Let the last events go out while there is somebody to send them."""
    if sending.done() or sending.cancelling():
        return
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            await recorder.flushed()
    except TimeoutError:
        log.warning("some events were not sent in time")


def _children(
    client: Client, namespace: str, queues: triggers.Queues
) -> tuple[Informer[Pod], Informer[Service]]:
    """Pods and Services that carry a job's name; all others stay out of memory."""
    pods = Informer[Pod](
        client,
        PODS,
        pod_from_json,
        partial(triggers.on_child, queues),
        namespace=namespace,
        label_selector=JOB_NAME,
        index=owner_uid,
    )
    services = Informer[Service](
        client,
        SERVICES,
        service_from_json,
        partial(triggers.on_child, queues),
        namespace=namespace,
        label_selector=JOB_NAME,
        index=owner_uid,
        accept=lambda whole_list: METADATA_ONLY_LIST if whole_list else METADATA_ONLY,
    )
    return pods, services


def _controller(
    kind: JobKind[Any],
    queue: Queue[Key],
    client: Client,
    caches: dict[Resource, Cache],
    teller: Teller,
    metrics: Metrics,
    settings: Settings,
    options: Options,
) -> _Controller:
    jobs = Informer[JobRow](
        client, kind.resource, job_from_json, partial(triggers.on_job, queue), namespace=settings.namespace
    )
    reconciler = Reconciler(
        kind,
        client,
        jobs.store,
        caches,
        teller,
        options,
        metrics.job(kind.framework),
        width=settings.kube_api_in_flight,
    )
    observer = metrics.controller(kind.controller_name, settings.controller_threads)
    metrics.queue(kind.controller_name, queue)
    workers = Workers(
        queue,
        reconciler.reconcile,
        count=settings.controller_threads,
        name=kind.controller_name,
        observer=observer,
    )
    return _Controller(jobs, queue, workers)
