"""The watches of children and nodes: their selectors, decoders, and the jobs that their changes trigger."""

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any

from api.batch import BATCH_JOBS, BatchJob, batch_job_from_json
from api.children import (
    ConfigMap,
    Pod,
    PodGroup,
    Service,
    config_map_from_json,
    pod_from_json,
    pod_group_from_json,
    service_from_json,
)
from api.labels import JOB_NAME
from api.meta import CONFIG_MAPS, PODS, SERVICES, Resource
from api.nodes import NODES, NodeDomain, node_domain_from_json
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.reconcile import triggers
from controller.reconcile.apply import Cache
from controller.reconcile.observe import owner_uid
from controller.runtime.informer import Informer
from controller.runtime.store import Store

Watched = tuple[Informer[Any], Cache]


def children(
    client: Client,
    namespace: str,
    queues: triggers.Queues,
    wanted: Container[Resource],
    on_pod: Callable[[Pod | None, Pod | None], None] = lambda before, after: None,
) -> list[Watched]:
    """Return the informers of the objects that jobs create, and that batch Jobs create for them. ``on_pod`` is called for each change of a pod.

    Pods, Services and ConfigMaps are selected by the label with the job's name; other objects stay out of memory. All batch Jobs are
    watched, because those that another operator created have no common label.
    """
    on_change = partial(triggers.on_child, queues)
    batch_jobs = Informer[BatchJob](
        client, BATCH_JOBS, batch_job_from_json, on_change, namespace=namespace, index=owner_uid
    )
    parents = partial(_batch_job_of, batch_jobs.store)

    def on_pod_change(before: Pod | None, after: Pod | None) -> None:
        on_pod(before, after)
        on_change(before, after, parents)

    pods = Informer[Pod](
        client,
        PODS,
        pod_from_json,
        on_pod_change,
        namespace=namespace,
        label_selector=JOB_NAME,
        index=owner_uid,
        is_gone=_is_gone,
    )
    on_write = partial(triggers.on_child, queues, any_change=True)
    services = Informer[Service](
        client,
        SERVICES,
        service_from_json,
        on_write,
        namespace=namespace,
        label_selector=JOB_NAME,
        index=owner_uid,
        accept=_metadata_only,
    )
    config_maps = Informer[ConfigMap](
        client,
        CONFIG_MAPS,
        config_map_from_json,
        on_write,
        namespace=namespace,
        label_selector=JOB_NAME,
        accept=_metadata_only,
    )
    watched: list[Watched] = [
        (pods, Cache(pods.store, pod_from_json, label=JOB_NAME)),
        (services, Cache(services.store, service_from_json, label=JOB_NAME)),
        (config_maps, Cache(config_maps.store, config_map_from_json, label=JOB_NAME)),
        (batch_jobs, Cache(batch_jobs.store, batch_job_from_json, _by_app)),
    ]
    return [watch for watch in watched if watch[0].resource in wanted]


def pod_groups(client: Client, namespace: str, queues: triggers.Queues, resource: Resource) -> Watched:
    """Watch all PodGroups: they have no label of this operator."""
    on_change = partial(triggers.on_child, queues)
    groups = Informer[PodGroup](client, resource, pod_group_from_json, on_change, namespace=namespace)
    return groups, Cache(groups.store, pod_group_from_json, _by_name)


def nodes(client: Client, label: str) -> Informer[NodeDomain]:
    """Watch the topology of nodes. Changes trigger no reconcile, because the pods of a job do not move."""
    return Informer[NodeDomain](
        client,
        NODES,
        partial(node_domain_from_json, label),
        lambda before, after: None,
        accept=_metadata_only,
    )


def _is_gone(known: Pod, reported: Pod) -> bool:
    """Return whether a pod was deleted, and did not just lose its label: a running pod terminates before it is deleted.

    Only a pod whose end would count as a failure is in doubt.
    """
    return known.deleting or reported.deleting or known.phase != "Running"


def _batch_job_of(batch_jobs: Store[BatchJob], pod: Pod) -> BatchJob | None:
    """Return the batch Job that created a pod."""
    owner = batch_jobs.get(pod.namespace, pod.owner_name) if pod.owner_kind == BATCH_JOBS.kind else None
    return owner if owner and owner.uid == pod.owner_uid else None


def _by_app(job: str) -> Mapping[str, str]:
    return {"labelSelector": f"app={job}"}


def _by_name(job: str) -> Mapping[str, str]:
    return {"fieldSelector": f"metadata.name={job}"}


def _metadata_only(whole_list: bool) -> str:
    return METADATA_ONLY_LIST if whole_list else METADATA_ONLY
