"""Kueue's Workloads, as cached rows, and the names that Kueue's contract consists of.

Source: kueue 0.19, apis/kueue/v1beta2, pkg/constants and pkg/controller/constants.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from api.children import Meta, Owned, owned
from api.labels import KUEUE_PREFIX, POD_SETS
from api.meta import Resource

GROUP: Final = "kueue.x-k8s.io"
WORKLOADS: Final = Resource(GROUP, "v1beta2", "Workload", "workloads")
RESOURCE_FLAVORS: Final = Resource(GROUP, "v1beta2", "ResourceFlavor", "resourceflavors", namespaced=False)
WORKLOAD_PRIORITY_CLASSES: Final = Resource(
    GROUP, "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False
)
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False
)

QUEUE_NAME: Final = f"{KUEUE_PREFIX}queue-name"
"""Label of a job: its LocalQueue."""
PRIORITY_CLASS: Final = f"{KUEUE_PREFIX}priority-class"
"""Label of a job: its WorkloadPriorityClass."""
MAX_EXECUTION_SECONDS: Final = f"{KUEUE_PREFIX}max-exec-time-seconds"
"""Label of a job: after this time Kueue deactivates it."""
PREBUILT: Final = f"{KUEUE_PREFIX}prebuilt-workload-name"
"""Label of a job: a Workload that somebody else has created for it."""
JOB_UID: Final = f"{KUEUE_PREFIX}job-uid"
"""Label of a Workload: the UID of its job."""
ADMISSION_GATED_BY: Final = f"{KUEUE_PREFIX}admission-gated-by"
"""Annotation of a job and its Workload: controllers that must agree before the Workload is admitted."""
PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"
"""The prefix of a job's annotations that its Workload passes on to ProvisioningRequests."""
RESOURCE_IN_USE: Final = f"{KUEUE_PREFIX}resource-in-use"
"""Finalizer of a Workload: its quota may be in use."""

POD_SET: Final = f"{KUEUE_PREFIX}podset"
"""Label of the pods of an admitted job."""
LOCAL_QUEUE: Final = f"{KUEUE_PREFIX}local-queue-name"
"""Label of the pods of an admitted job."""
CLUSTER_QUEUE: Final = f"{KUEUE_PREFIX}cluster-queue-name"
"""Label of the pods of an admitted job."""
WORKLOAD: Final = f"{KUEUE_PREFIX}workload"
"""Annotation of the pods of an admitted job: the name of its Workload."""
TOPOLOGY: Final = f"{KUEUE_PREFIX}topology"
"""Scheduling gate of the pods whose nodes Kueue chooses."""
REQUIRED_TOPOLOGY: Final = f"{KUEUE_PREFIX}podset-required-topology"
PREFERRED_TOPOLOGY: Final = f"{KUEUE_PREFIX}podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY: Final = f"{KUEUE_PREFIX}podset-unconstrained-topology"
SLICE_TOPOLOGY: Final = f"{KUEUE_PREFIX}podset-slice-required-topology"
SLICE_SIZE: Final = f"{KUEUE_PREFIX}podset-slice-size"
POD_SET_GROUP: Final = f"{KUEUE_PREFIX}podset-group-name"

ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
FINISHED: Final = "Finished"
PODS_READY: Final = "PodsReady"
QUOTA_RESERVED: Final = "QuotaReserved"
REQUEUED: Final = "Requeued"


class Workload(Owned, frozen=True, gc=False):
    """One Workload. ``spec`` and ``status`` are JSON; those of objects without Workloads of this operator are not kept."""

    finalizers: tuple[str, ...] = ()
    pod_sets: str = ""
    """The fingerprint of the pod sets, from its annotation; empty if Kueue itself created the Workload."""
    annotations: Mapping[str, str] = {}
    true: frozenset[str] = frozenset()
    """The types of the conditions that are True."""
    spec: bytes = b"{}"
    status: bytes = b"{}"

    @property
    def has_finalizer(self) -> bool:
        """Whether the finalizer is set that keeps the Workload, and its quota, until the pods are gone."""
        return RESOURCE_IN_USE in self.finalizers

    @property
    def is_reserved(self) -> bool:
        """Whether it holds quota."""
        return QUOTA_RESERVED in self.true and FINISHED not in self.true

    @property
    def is_admitted(self) -> bool:
        """Whether its job may run."""
        return self.is_reserved and ADMITTED in self.true

    @property
    def is_evicted(self) -> bool:
        return EVICTED in self.true

    @property
    def is_finished(self) -> bool:
        return FINISHED in self.true


class _WorkloadMeta(msgspec.Struct, rename="camel"):
    finalizers: list[str] | None = None
    annotations: dict[str, str] | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Object(msgspec.Struct):
    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


_decode = msgspec.json.Decoder(_Object).decode
_decode_meta = msgspec.json.Decoder(Meta).decode
_decode_workload_meta = msgspec.json.Decoder(_WorkloadMeta).decode
_decode_status = msgspec.json.Decoder(_Status | None).decode


def workload_from_json(kinds: Collection[str], raw: bytes | memoryview | msgspec.Raw) -> Workload:
    """Decode a Workload as the API server sends it.

    Args:
        kinds: the kinds of owners whose Workloads are of interest.

    Raises:
        msgspec.DecodeError: this is not a Workload.
    """
    found = _decode(raw)
    identity = owned(_decode_meta(found.metadata))
    if identity["owner_kind"] not in kinds:
        return Workload(**identity)
    meta, status = _decode_workload_meta(found.metadata), _decode_status(found.status) or _Status()
    annotations = meta.annotations or {}
    return Workload(
        **identity,
        finalizers=tuple(meta.finalizers or ()),
        pod_sets=annotations.get(POD_SETS, ""),
        annotations={key: value for key, value in annotations.items() if is_passed_on(key)},
        true=frozenset(condition.type for condition in status.conditions or () if condition.status == "True"),
        # Copies, because a Raw would keep the whole page in memory.
        spec=bytes(found.spec),
        status=bytes(found.status),
    )


def is_passed_on(annotation: str) -> bool:
    """Return whether a Workload gets this annotation from its job."""
    return annotation == ADMISSION_GATED_BY or annotation.startswith(PROVISIONING_PREFIX)


def index_of(kind: str, namespace: str, name: str) -> str:
    """Return the index of the Workloads of a job, whichever UID it had."""
    return f"{kind}/{namespace}/{name}"


def owner_of(workload: Workload) -> str:
    """Return the index of a Workload: the job that owns it."""
    return index_of(workload.owner_kind, workload.namespace, workload.owner_name)


def is_dns_label(text: str) -> bool:
    """Return whether Kueue uses this name of a ClusterQueue as a label of pods, which a DNS label is."""
    return 0 < len(text) <= 63 and "." not in text
