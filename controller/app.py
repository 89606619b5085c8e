"""The composition root: builds the service from the settings, starts it and stops it."""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from api.batch import BATCH_JOBS, BatchJob
from api.children import Pod
from api.meta import PODS, Resource
from api.nodes import NodeDomain
from api.services import ServiceMode
from controller import kinds
from controller.domain import Key, Probe
from controller.kind import JobKind, Options, ReplicaKind
from controller.kind.options import find
from controller.kube.client import Client, always
from controller.kube.connect import Connection
from controller.kube.errors import NotLeading, describe
from controller.kube.namespaces import TerminatingNamespaces
from controller.kube.token_bucket import TokenBucket
from controller.kube.transport import Observer
from controller.kueue.pod_sets import is_queueable
from controller.kueue.setup import Queueing
from controller.policy.gang import groups_of, scheduler_of
from controller.reconcile import triggers, watches
from controller.reconcile.apply import Cache
from controller.reconcile.events import EventRecorder
from controller.reconcile.jobs import JobRow, job_from_json
from controller.reconcile.memory import JobMemories
from controller.reconcile.progress import ProgressMonitor
from controller.reconcile.reconciler import Reconciler
from controller.runtime import clock
from controller.runtime.informer import Informer
from controller.runtime.leader import Election, new_identity
from controller.runtime.lifecycle import Controller, ControllerProcess, NothingServed
from controller.runtime.migration import migrated
from controller.runtime.nodes import NodeMonitor
from controller.runtime.prober import ProbeTarget, TCPProber
from controller.runtime.queue import Queue
from controller.runtime.recorder import Recorder
from controller.runtime.relist import Relist
from controller.runtime.serverclock import ServerClock
from controller.runtime.store import Store
from controller.runtime.workers import ReconcileResult, Workers
from controller.server.certificate import CertificateFiles, SelfSigned, ServingCertificate
from controller.server.http import NOWHERE, Security, serving
from controller.server.reviews import REVIEWS_AT_ONCE, REVIEWS_BURST, REVIEWS_PER_SECOND, Reviewer
from controller.settings import Settings
from controller.telemetry import build
from controller.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from controller.shadow.report import Report
    from controller.telemetry.tracing import Tracing

SPACING_SECONDS = 0.01
"""The minimum time between two reconciles of a job that changes of its children cause, so that one reconcile handles those of many pods.

Reconciles of large jobs are spaced by what they cost, too.
"""

QUEUEING_THREADS = 4
"""Maximum number of jobs of one kind whose Workloads are written concurrently."""

PROGRESS_READS_AT_ONCE = 16
"""Maximum number of pods that are read concurrently to observe the progress of jobs."""

WARMING_DELAY_SECONDS = 1.0
"""The delay from filled caches to opening spare connections: pending jobs go first."""


class UnknownKind(ValueError):
    """``--enable-scheme`` names an unknown kind."""


class NoNamespace(Exception):
    """The namespace of the leader election's Lease is unknown."""


class NoTracing(Exception):
    """``--tracing`` is set, and OpenTelemetry is not installed or its configuration cannot be used."""


def _nothing() -> None: ...


def kinds_named(names: Iterable[str]) -> tuple[JobKind[Any], ...]:
    """Return the kinds of these names, case-insensitive; without names, those of the default installation.

    Raises:
        UnknownKind: a name is unknown.
    """
    by_name = {kind.resource.kind.lower(): kind for kind in kinds.ALL}
    given = list(names)
    for name in given:
        if name.lower() not in by_name:
            served = ", ".join(kind.resource.kind for kind in kinds.ALL)
            raise UnknownKind(f"--enable-scheme {name}: not a served kind (served kinds: {served})")
    return tuple(by_name[name] for name in dict.fromkeys(map(str.lower, given))) or kinds.DEFAULT


def options_from(settings: Settings) -> Options:
    """Return the options that planning reads, and load the files that the options of kinds name.

    Raises:
        InvalidOption: a named file is missing or invalid, which is reported at the start and not for each job.
    """
    own = [kind.options for kind in kinds.ALL if kind.options]
    return Options(
        gang_scheduler=scheduler_of(settings.gang_scheduler_name),
        max_replicas=settings.max_replicas,
        clean_finished_pods=settings.clean_finished_pods,
        cluster_domain=settings.cluster_domain,
        services=ServiceMode(settings.services),
        of_kinds=tuple(find(type_, settings.of_kinds).load() for type_ in own),
    )


async def run(
    settings: Settings,
    connection: Connection,
    *,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[], None] = _nothing,
    on_work: Callable[[], None] = _nothing,
    time: Callable[[], float] = clock.uptime,
    cpu_time: Callable[[], float] = clock.cpu_time,
) -> None:
    """Run the whole controller until ``stop`` is set and everything is handed over. If canceled, end immediately.

    Args:
        on_ready: called when the caches are filled.
        on_work: called when this process starts to reconcile, which may never happen.
        time: the clock of the leader election.
        cpu_time: the clock by which the cost of reconciles is measured.

    Raises:
        UnknownKind: the settings name an unknown kind.
        InvalidOption: a file that the options of a kind name cannot be used.
        NoNamespace: the namespace of the Lease is unknown.
        NotLeading: this process led, and another one may lead by now.
        NothingServed: with leader election: the API server serves no kind any more.
        NoTracing: the settings require traces, which are not possible.
        OSError: an address is in use.
    """
    served, options = kinds_named(settings.enable_scheme), options_from(settings)
    leases = leases_from(settings, connection)
    server_clock = ServerClock()
    metrics = Metrics(CollectorRegistry(), build.operator_version(), server_clock.now)
    observer: Observer = metrics.requests(urlsplit(connection.server).netloc)
    tracing = _tracing(connection.server) if settings.tracing else None
    rate_limiter = (
        TokenBucket(settings.kube_api_qps, settings.kube_api_burst) if settings.kube_api_qps else None
    )
    in_flight = settings.kube_api_in_flight
    metrics.clock(server_clock.offset_seconds)
    report = _shadow_report(metrics) if settings.shadow else None
    user_agent = "rallypoint-shadow" if settings.shadow else "rallypoint"
    async with AsyncExitStack() as clients:
        if tracing:
            observer = (await clients.enter_async_context(tracing)).requests(observer)
        election, permit = None, always
        if leases:
            # A client of its own, so that no renewal waits behind the requests of a large job.
            election_client = await clients.enter_async_context(
                Client(connection, observer=observer, on_date=server_clock.observe, timer=clock.uptime)
            )
            election = Election(
                election_client, leases, new_identity(), time=time, observer=metrics.election()
            )
            permit = election.permit
        client = await clients.enter_async_context(
            Client(
                connection,
                in_flight=in_flight,
                rate_limiter=rate_limiter,
                observer=observer,
                permit=permit,
                terminating=TerminatingNamespaces(),
                on_date=server_clock.observe,
                timer=clock.uptime,
                tracer=tracing,
                user_agent=user_agent,
                read_only=settings.shadow,
            )
        )
        metrics.limiter(client.limiter)
        security = None
        if settings.metrics_secure and settings.metrics_bind_address != NOWHERE:
            # A client of its own: a standby writes no jobs but asks for reviews, and these wait for no job.
            reviewing = await clients.enter_async_context(
                Client(
                    connection,
                    in_flight=REVIEWS_AT_ONCE,
                    rate_limiter=TokenBucket(REVIEWS_PER_SECOND, REVIEWS_BURST),
                    observer=observer,
                    user_agent=user_agent,
                )
            )
            security = _metrics_security(settings, reviewing, metrics)
        prober = TCPProber()
        reading = await clients.enter_async_context(
            Client(connection, in_flight=PROGRESS_READS_AT_ONCE, observer=observer, user_agent=user_agent)
        )
        progress = ProgressMonitor(reading, server_clock.now)
        process = _controller_process(
            served,
            options,
            settings,
            client,
            election,
            metrics,
            tracing,
            prober,
            progress,
            server_clock,
            on_ready,
            on_work,
            report,
            cpu_time,
        )
        try:
            await _serve(
                settings,
                metrics,
                security,
                client,
                process,
                [prober.run, progress.run],
                report,
                stop or asyncio.Event(),
            )
        except ExceptionGroup as group:
            ended, other = group.split((NotLeading, NothingServed))
            if ended is None or other is not None:
                raise
            raise _first(ended) from None


def _tracing(server: str) -> "Tracing":
    """Start to trace.

    Raises:
        NoTracing: the extra is not installed, or a variable cannot be used.
    """
    try:
        from controller.telemetry.tracing import Tracing
    except ImportError as error:
        text = f"--tracing: OpenTelemetry is not installed ({error}); install rallypoint-operator[tracing]"
        raise NoTracing(text) from error
    try:
        return Tracing(server, build.operator_version(), describe)
    except (ValueError, OSError) as error:
        raise NoTracing(f"--tracing: {error}") from error


def _shadow_report(metrics: Metrics) -> "Report":
    from controller.shadow.report import Report
    from controller.telemetry.metrics.shadow import ShadowMetrics

    report = Report()
    ShadowMetrics(metrics.registry, report.results)
    return report


def _debugging(settings: Settings, report: "Report | None") -> AbstractAsyncContextManager[object]:
    """Serve what helps to debug, if the settings have an address for it; otherwise import nothing of it."""
    if settings.pprof_bind_address in {"", NOWHERE}:
        return nullcontext()
    from controller.server.debug import debugging

    extra = {"shadow": ("where the decisions differ, as JSON", report.to_bytes)} if report else {}
    return debugging(settings.pprof_bind_address, extra)


def _metrics_security(settings: Settings, client: Client, metrics: Metrics) -> Security:
    read = (
        CertificateFiles(settings.metrics_cert_path, settings.metrics_cert_name, settings.metrics_cert_key)
        if settings.metrics_cert_path
        else SelfSigned(platform.node())
    )
    endpoint = metrics.endpoint()
    reviewer = Reviewer(client, endpoint, settings.metrics_token_audiences)
    return Security(ServingCertificate(read, endpoint), reviewer)


def leases_from(settings: Settings, connection: Connection) -> list[tuple[str, str]]:
    """Return the namespace and name of each Lease that this process must hold to reconcile; none without leader election.

    They include the Lease of each original whose kinds are served, so that none of them works at the same time.

    Raises:
        NoNamespace: neither a setting nor the connection names one.
    """
    if not settings.leader_elect:
        return []
    namespace = settings.leader_election_namespace or connection.namespace
    if not namespace:
        raise NoNamespace(
            "--leader-elect needs --leader-election-namespace: this process runs outside a pod, and the kubeconfig's context names no namespace"
        )
    others = {kind.lease for kind in kinds_named(settings.enable_scheme) if kind.lease}
    return [
        (namespace, settings.leader_election_id),
        *((settings.lock_namespace or namespace, name) for name in sorted(others)),
    ]


async def _serve(
    settings: Settings,
    metrics: Metrics,
    security: Security | None,
    client: Client,
    process: ControllerProcess,
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]],
    report: "Report | None",
    stop: asyncio.Event,
) -> None:
    def alive() -> str:
        # An answer is sufficient. Without an API server a restart would not help and would empty the caches; a metric shows how long
        # it has been silent.
        return ""

    def ready() -> str:
        # A ready process stays ready. A silent API server is no reason to route requests away, because Prometheus scrapes through the
        # Service and needs the metrics then. Nor does leadership matter, or a rolling update would never finish.
        if process.is_serving:
            return ""
        waiting = process.unfilled()
        filling = f"caches are being filled: {', '.join(waiting)}" if waiting else ""
        return "\n".join(filter(None, (filling, unserved()))) or "starting"

    def unserved() -> str:
        names = process.unserved()
        return f"not served: {', '.join(names)}" if names else ""

    addresses = settings.metrics_bind_address, settings.health_probe_bind_address
    if security:
        await security.certificate.refresh()
    async with (
        _debugging(settings, report),
        serving(*addresses, metrics.registry, alive, ready, unserved, security),
        asyncio.TaskGroup() as group,
    ):
        works = [metrics.loop().run(), _warm(client, process), *(run() for run in background)]
        if security:
            works.append(security.certificate.run())
        tasks = [group.create_task(work) for work in works]
        await process.run(stop)
        for task in tasks:
            task.cancel()


async def _warm(client: Client, process: ControllerProcess) -> None:
    """Keep connections open until canceled; not during the start, which needs the CPU of both sides."""
    await process.ready.wait()
    await asyncio.sleep(WARMING_DELAY_SECONDS)
    await client.keep_warm()


@dataclass(frozen=True)
class _Shared:
    """What the controllers of all kinds share."""

    settings: Settings
    options: Options
    client: Client
    metrics: Metrics
    tracing: "Tracing | None"
    prober: TCPProber
    progress: ProgressMonitor
    events: EventRecorder
    monitor: NodeMonitor
    caches: Mapping[Resource, Cache]
    nodes: Mapping[str, Informer[NodeDomain]]
    """By the label in their selector."""
    owned: Mapping[Resource, Informer[Any]]
    """Informers that only some kinds need."""
    now: Callable[[], datetime]
    cpu_time: Callable[[], float]
    report: "Report | None"
    """The report of shadow mode; None if this process reconciles."""
    on_pods: dict[str, Callable[[Pod | None, Pod | None], None]]
    """Called for each change of a pod, by the kind of its job."""
    queueing: Queueing | None
    """The Workloads of all kinds; None without ``--kueue``."""
    discard: Callable[[str], None]
    """Discards what is observed of a job, by its UID."""


def _controller_process(
    served: Sequence[JobKind[Any]],
    options: Options,
    settings: Settings,
    client: Client,
    election: Election | None,
    metrics: Metrics,
    tracing: "Tracing | None",
    prober: TCPProber,
    progress: ProgressMonitor,
    server_clock: ServerClock,
    on_ready: Callable[[], None],
    on_work: Callable[[], None],
    report: "Report | None",
    cpu_time: Callable[[], float],
) -> ControllerProcess:
    is_recording = settings.events != "off" and report is None
    recorder = Recorder(client, enabled=is_recording, now=server_clock.now)
    metrics.events(lambda: recorder.dropped, lambda: recorder.limited)
    events = EventRecorder(recorder, compact=settings.events == "compact")
    queues = {
        kind.resource.kind: Queue[Key](group=lambda key: key.namespace, spacing_seconds=SPACING_SECONDS)
        for kind in served
    }
    watch_args = client, settings.namespace, queues
    monitor = NodeMonitor(client, server_clock.now)

    def discard(uid: str) -> None:
        metrics.jobs.discard(uid)
        monitor.unfollow(uid)
        progress.discard(uid)

    memories = {kind.resource.kind: JobMemories(discard) for kind in served}
    on_pods: dict[str, Callable[[Pod | None, Pod | None], None]] = {
        kind: of_kind.observe_pod for kind, of_kind in memories.items()
    }

    def on_pod(before: Pod | None, after: Pod | None) -> None:
        if before is not None and before.owner_kind in on_pods:
            on_pods[before.owner_kind](before, after)
        if queueing:
            queueing.on_pod(before, after)

    queueing = Queueing(client, settings.namespace, queues, served) if settings.kueue else None
    children = watches.children(
        *watch_args, {resource for kind in served for resource in kind.children}, on_pod
    )
    group_resource = groups_of(options.gang_scheduler)
    groups = [watches.pod_groups(*watch_args, group_resource)] if group_resource else []
    node_labels = {label for kind in served if (label := kind.node_label(options))}
    nodes = {label: watches.nodes(client, label) for label in node_labels}
    shared_by_all = set.intersection(*(set(kind.children) for kind in served))
    caches = {informer.resource: cache for informer, cache in (*children, *groups)}
    shared = _Shared(
        settings,
        options,
        client,
        metrics,
        tracing,
        prober,
        progress,
        events,
        monitor,
        caches,
        nodes,
        {cache.resource: cache for cache, _ in children if cache.resource not in shared_by_all},
        server_clock.now,
        cpu_time,
        report,
        on_pods,
        queueing,
        discard,
    )
    create = _controller if report is None else _shadow_controller
    controllers = [
        create(shared, kind, queues[kind.resource.kind], memories[kind.resource.kind]) for kind in served
    ]
    queueing_controllers = [
        _kueue_controller(shared, queueing, kind, controller.jobs, recorder)
        for kind, controller in zip(served, controllers, strict=True)
        if queueing and is_queueable(kind)
    ]
    needed = [cache for cache, _ in children if cache.resource in shared_by_all]
    optional = [cache for cache, _ in groups]
    informers = list(
        dict.fromkeys(
            [
                *needed,
                *optional,
                *(
                    informer
                    for controller in (*controllers, *queueing_controllers)
                    for informer in controller.informers
                ),
            ]
        )
    )
    if report is not None:
        report.require(informers)
    for informer in informers:
        metrics.watch(informer.resource.plural, informer)
    batch_jobs = caches.get(BATCH_JOBS)
    if batch_jobs is not None:
        metrics.launchers(partial(_launchers, batch_jobs.store, queues))

    def take_over() -> None:
        if election:
            election.record_leader(recorder)
        on_work()

    return ControllerProcess(
        needed,
        optional,
        [*controllers, *queueing_controllers],
        recorder,
        election,
        take_over=take_over,
        on_ready=on_ready,
        repair_tasks=[Relist(informer).run for informer in informers],
        background_tasks=[
            monitor.run,
            # A version can only be removed from the stored versions by a process that sees the objects of all namespaces.
            *(
                partial(_when_served, controller.jobs, partial(migrated, client, kind.resource))
                for kind, controller in zip(served, controllers, strict=True)
                if kind.model.other_versions and not settings.namespace and report is None
            ),
        ],
        # The answers of writes to Workloads and of Kueue's changes of jobs are not all stored.
        knows_its_writes=lambda: queueing is None and client.knows_its_writes(),
    )


async def _when_served(informer: Informer[Any], start: Callable[[], Awaitable[None]]) -> None:
    await informer.synced.wait()
    await start()


def _first(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


def _launchers(batch_jobs: Store[BatchJob], kinds: Container[str]) -> Iterator[tuple[str, str]]:
    """Return the name and namespace of the batch Jobs whose controllers are served jobs."""
    return ((job.name, job.namespace) for job in batch_jobs if job.owner_kind in kinds)


def _controller(shared: _Shared, kind: JobKind[Any], queue: Queue[Key], memories: JobMemories) -> Controller:
    settings, options, metrics, prober = shared.settings, shared.options, shared.metrics, shared.prober

    def start_probe(key: Key, probe: Probe) -> None:
        prober.probe(
            ProbeTarget(probe.uid, probe.address, probe.ports, probe.greeting), partial(queue.add, key)
        )

    def on_job(before: JobRow | None, after: JobRow | None) -> None:
        memories.observe(before, after)
        if shared.queueing:
            shared.queueing.on_job(kind.resource.kind, before, after)
        if shared.client.terminating and after and (before is None or before.uid != after.uid):
            shared.client.terminating.discard(
                after.namespace
            )  # the namespace accepts objects, because it accepted this one
        triggers.on_job(queue, before, after)

    jobs = Informer[JobRow](
        shared.client,
        kind.resource,
        job_from_json,
        on_job,
        namespace=settings.namespace,
        echoed=("MODIFIED",),
    )
    nodes = shared.nodes.get(kind.node_label(options))
    needed = [informer for resource, informer in shared.owned.items() if resource in kind.children]
    reconciler = Reconciler(
        kind,
        shared.client,
        jobs.store,
        _caches_of(shared, kind),
        shared.events,
        options,
        lambda variant, namespace, count: metrics.job(variant.framework, variant.controller_name)(
            namespace, count
        ),
        memories,
        metrics.jobs,
        width=settings.kube_api_in_flight,
        nodes=nodes.store if nodes else None,
        answered=prober.answered,
        probe=start_probe,
        monitor=shared.monitor,
        wake=queue.add,
        is_held=shared.queueing.is_held_of(kind) if shared.queueing else lambda row: False,
        progress=shared.progress,
        now=shared.now,
    )
    observer = metrics.controller(kind.controller_name, settings.controller_threads)
    metrics.queue(kind.controller_name, queue)
    work: Callable[[Key], Awaitable[ReconcileResult]] = reconciler.reconcile
    if shared.tracing:
        work = shared.tracing.reconciles(kind.resource.kind, work)
    if shared.queueing:
        work = shared.queueing.followed(kind, work)
    workers = Workers(
        queue,
        work,
        count=settings.controller_threads,
        name=kind.controller_name,
        observer=observer,
        cpu_time=shared.cpu_time,
    )

    def take_over() -> None:
        metrics.jobs.start(kind.framework)
        for row in jobs.store:
            triggers.on_job(queue, None, row)
        for key in memories.reconciled():
            if jobs.store.get(key.namespace, key.name) is None:
                queue.add(key)  # the job went while its kind was not served, when the queue was closed

    def pause() -> None:
        for memory in memories:
            shared.discard(memory.uid)  # nothing updates it while the kind is not served

    def hand_over() -> None:
        metrics.jobs.stop()
        reconciler.record_summaries()

    return Controller(
        jobs, queue, workers, take_over, pause, hand_over, [*needed, *([nodes] if nodes else [])]
    )


def _kueue_controller(
    shared: _Shared, queueing: Queueing, kind: ReplicaKind[Any], jobs: Informer[JobRow], recorder: Recorder
) -> Controller:
    """Return the controller of the Workloads of one kind."""
    name, metrics = f"{kind.resource.singular}-kueue", shared.metrics
    queue = queueing.queues[kind.resource.kind]
    work = queueing.reconciler(
        kind, shared.client, jobs.store, shared.caches[PODS].store, recorder, shared.now
    )
    observer = metrics.controller(name, QUEUEING_THREADS)
    metrics.queue(name, queue)
    workers = Workers(queue, work, count=QUEUEING_THREADS, name=name, observer=observer)
    take_over = partial(queueing.take_over, kind.resource.kind, jobs.store)
    return Controller(jobs, queue, workers, take_over, _nothing, _nothing, [queueing.cache])


def _shadow_controller(
    shared: _Shared, kind: JobKind[Any], queue: Queue[Key], memories: JobMemories
) -> Controller:
    """Return the controller of one kind in shadow mode: it compares its decisions, and writes nothing."""
    from controller.shadow.controller import ShadowController

    settings, options, metrics = shared.settings, shared.options, shared.metrics
    assert shared.report is not None

    def on_job(before: JobRow | None, after: JobRow | None) -> None:
        memories.observe(before, after)
        shadow.observe_job(before, after)
        triggers.on_job(queue, before, after)

    jobs = Informer[JobRow](shared.client, kind.resource, job_from_json, on_job, namespace=settings.namespace)
    nodes = shared.nodes.get(kind.node_label(options))
    needed = [informer for resource, informer in shared.owned.items() if resource in kind.children]
    shadow = ShadowController(
        kind,
        shared.client,
        jobs.store,
        _caches_of(shared, kind),
        shared.events,
        options,
        memories,
        nodes=nodes.store if nodes else None,
        now=shared.now,
    )
    shared.report.add(shadow.results)
    shared.on_pods[kind.resource.kind] = shadow.observe_pod
    observer = metrics.controller(kind.controller_name, settings.controller_threads)
    metrics.queue(kind.controller_name, queue)
    workers = Workers(
        queue,
        shadow.reconcile,
        count=settings.controller_threads,
        name=kind.controller_name,
        observer=observer,
    )

    def take_over() -> None:
        for row in jobs.store:
            triggers.on_job(queue, None, row)

    return Controller(
        jobs, queue, workers, take_over, _nothing, _nothing, [*needed, *([nodes] if nodes else [])]
    )


def _caches_of(shared: _Shared, kind: JobKind[Any]) -> dict[Resource, Cache]:
    """Return the caches of the children of one kind, and of their PodGroups."""
    groups = groups_of(shared.options.gang_scheduler)
    return {
        resource: cache
        for resource, cache in shared.caches.items()
        if resource == groups or resource in kind.children
    }
