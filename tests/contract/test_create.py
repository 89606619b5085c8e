"""Creating built-in objects: the defaults, errors and warnings of both servers."""

from typing import Any, Protocol

import pytest

from rallypoint.testing.http_trace import Step

PODS = "/api/v1/namespaces/{ns}/pods"
SERVICES = "/api/v1/namespaces/{ns}/services"
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"


class Both(Protocol):
    async def agree(self, steps: list[Step]) -> None: ...


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "train:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "c", "image": "train:1", **fields}])


def mounted(**mount: Any) -> dict[str, Any]:
    """A pod with a volume that is mounted like this."""
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return pod(
        volumes=[{"name": "v", "emptyDir": {}}],
        containers=[{"name": "c", "image": "train:1", "volumeMounts": mounts}],
    )


def affinity(**requirement: Any) -> dict[str, Any]:
    """A node affinity with this requirement."""
    terms = [{"matchExpressions": [requirement]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def service(*ports: dict[str, Any], name: str = "s", **spec: Any) -> dict[str, Any]:
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": list(ports), **spec}}


def indexed_job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {
        "metadata": {"name": "j"},
        "spec": {"completionMode": "Indexed", "completions": 5, "template": template, **spec},
    }


def named(name: Any, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **fields}}


def post(path: str, body: Any, code: int = 201, **fields: Any) -> Step:
    return Step("POST", path, body, code, **fields)


EVERY_VOLUME = [
    {"name": "config", "configMap": {"name": "x"}},
    {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
    {"name": "key", "secret": {"secretName": "x"}},
    {"name": "host", "hostPath": {"path": "/data"}},
    {
        "name": "about",
        "projected": {
            "sources": [
                {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}
            ]
        },
    },
    {"name": "nothing"},
]

TAKEN = {
    "a pod is filled in": post(PODS, pod()),
    "resources are canonical and requests follow limits": post(
        PODS, container(resources={"limits": {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 1}})
    ),
    "requests stay where they are given": post(
        PODS, container(resources={"limits": {"cpu": 2}, "requests": {"cpu": "0.5", "memory": "1.5Gi"}})
    ),
    "every volume": post(PODS, pod(volumes=EVERY_VOLUME)),
    "probes": post(PODS, container(livenessProbe={"httpGet": {"port": 80}}, readinessProbe={"exec": {"command": ["a"]}})),
    "variables": post(
        PODS,
        container(
            env=[
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "C", "value": ""},
            ]
        ),
    ),
    "ports": post(PODS, container(ports=[{"containerPort": 23456, "name": "pytorchjob-port"}])),
    "the image's tag decides about pulling": post(PODS, container(image="train:latest")),
    "an image by digest": post(PODS, container(image="train@sha256:" + "0" * 64)),
    "init containers": post(PODS, pod(initContainers=[{"name": "i", "image": "wait"}], restartPolicy="Never")),
    "host network": post(PODS, pod(hostNetwork=True, containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 5}]}])),
    "a scheduling gate": post(PODS, pod(schedulingGates=[{"name": "a.b/c"}]), ignore=("status.conditions",)),
    "own tolerations": post(PODS, pod(tolerations=[{"operator": "Exists"}])),
    "an empty service account": post(PODS, pod(automountServiceAccountToken=False)),
    "nulls count as left out": post(PODS, pod(nodeSelector=None, volumes=None, priority=None)),
    "a headless service": post(SERVICES, service({"port": 23456, "name": "p"}, clusterIP="None", selector={"a": "b"})),
    "a service with an address": post(SERVICES, service({"port": 80, "targetPort": "http"}, selector={"a": "b"})),
    "a headless service without ports": post(SERVICES, service(clusterIP="None", selector={"a": "b"})),
    "a headless service without selector": post(SERVICES, service({"port": 1}, clusterIP="None")),
    "an external name": post(SERVICES, service(type="ExternalName", externalName="a.b")),
    "unpublished addresses": post(
        SERVICES, service({"port": 1}, clusterIP="None", selector={"a": "b"}, publishNotReadyAddresses=True)
    ),
    "a service named with a digit": post(SERVICES, service({"port": 1}, name="1s", clusterIP="None", selector={"a": "b"})),
    "a config map": post(CONFIGMAPS, {**named("c"), "data": {"a": "b"}, "binaryData": {"x": "AAE="}}),
    "a secret in plain text": post(SECRETS, {**named("s"), "stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
    "a typed secret": post(SECRETS, {**named("s"), "type": "a.b/c"}),
    "a lease": post(LEASES, {**named("l"), "spec": {"holderIdentity": "x", "renewTime": "2024-01-01T00:00:00.000000Z"}}),
    "an autoscaler": post(
        AUTOSCALERS,
        {**named("h"), "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "PyTorchJob", "name": "x", "apiVersion": "kubeflow.org/v1"}}},
    ),
    "a job": post(JOBS, {**named("j"), "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
    "a job with a fixed parallelism": post(
        JOBS,
        {
            **named("j", labels={"own": "label"}),
            "spec": {"parallelism": 2, "suspend": True, "template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]}}},
        },
    ),
    "a service account": post("/api/v1/namespaces/{ns}/serviceaccounts", named("a")),
    "a claim": post(
        CLAIMS,
        {**named("c"), "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    ),
    "a claim of a class": post(
        CLAIMS,
        {**named("c"), "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "x", "volumeName": "v", "resources": {"requests": {"storage": "1.5Gi"}}}},
    ),
    "a volume": post(
        "/api/v1/persistentvolumes",
        {**named("{ns}"), "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1024Mi"}, "hostPath": {"path": "/data"}}},
    ),
    "a storage class": post("/apis/storage.k8s.io/v1/storageclasses", {**named("{ns}"), "provisioner": "a.b/c"}),
    "a role": post(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
        {**named("launcher:x"), "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    "a role binding": post(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
        {**named("b"), "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "a"}]},
    ),
    "an event": post(
        "/api/v1/namespaces/{ns}/events",
        {**named("e"), "involvedObject": {"kind": "Pod", "name": "x", "namespace": "{ns}"}, "reason": "R", "message": "m", "type": "Normal"},
    ),
    "labels, annotations, owners and finalizers": post(
        CONFIGMAPS,
        named(
            "c", labels={"a": "b", "x.y/z": ""}, annotations={"a": "any text"}, finalizers=["a.b/c"],
            ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u", "controller": True}],
        ),
    ),
    "what the server decides is not taken from the client": post(
        CONFIGMAPS, named("c", uid="x", creationTimestamp="2001-01-01T00:00:00Z", generation=7, deletionTimestamp="2001-01-01T00:00:00Z"),
    ),
    "downward API files": post(
        PODS,
        pod(
            volumes=[
                {
                    "name": "v",
                    "downwardAPI": {
                        "items": [
                            {"path": "a/b", "mode": 0, "fieldRef": {"fieldPath": "metadata.labels['x.y/z']"}},
                            {"path": "c", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory"}},
                        ]
                    },
                }
            ]
        ),
    ),
    "limits without requests": post(PODS, container(resources={"limits": {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi", "cpu": 1}})),
    "a hook that sleeps": post(PODS, container(lifecycle={"preStop": {"sleep": {"seconds": 5}}, "postStart": {"httpGet": {"port": "web"}}})),
    "a secret with line breaks in it": post(SECRETS, {**named("s"), "data": {"a": "YWJj\nZGVm"}}, ignore=("data",)),
    "a variable that may be missing": post(
        PODS,
        container(
            env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}],
            envFrom=[{"prefix": "P_", "configMapRef": {"name": "c"}}],
        ),
    ),
    "a sidecar with probes and hooks": post(
        PODS,
        pod(
            initContainers=[
                {
                    "name": "i", "image": "i:1", "restartPolicy": "Always", "startupProbe": {"tcpSocket": {"port": 1}},
                    "lifecycle": {"preStop": {"exec": {"command": ["a"]}}},
                }
            ]
        ),
    ),
    "an unknown field is dropped with a warning": post(PODS, {**pod(), "unheard": 1}),
    "unknown fields in a list": post(PODS, container(colour="red")),
    "an unknown field is dropped silently": post(PODS, container(colour="red"), query={"fieldValidation": "Ignore"}),
    "a dry run": post(PODS, pod(), query={"dryRun": "All"}),
    "a body without kind": post(CONFIGMAPS, named("c")),
    "yaml": post(CONFIGMAPS, None, type="application/yaml", raw=b"metadata:\n  name: c\ndata:\n  a: b\n"),
    "metadata only": post(PODS, pod(), accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
}  # fmt: skip

REFUSED = {
    "no name": post(PODS, {"spec": {"containers": [{"name": "c", "image": "i"}]}}, 422),
    "a name with capitals": post(PODS, pod("Job_1"), 422),
    "a name that is too long": post(CONFIGMAPS, named("a" * 254), 422),
    "a service name that is too long": post(SERVICES, service({"port": 1}, name="a" * 64, clusterIP="None"), 422),
    "no containers": post(PODS, {**named("p"), "spec": {}}, 422),
    "a container without a name": post(PODS, pod(containers=[{"image": "i"}]), 422),
    "a container without an image": post(PODS, pod(containers=[{"name": "c"}]), 422),
    "two containers of one name": post(PODS, pod(containers=[{"name": "c", "image": "i"}] * 2), 422),
    "a container name with a dot": post(PODS, pod(containers=[{"name": "a.b", "image": "i"}]), 422),
    "an unknown restart policy": post(PODS, pod(restartPolicy="ExitCode"), 422),
    "a port out of range": post(PODS, container(ports=[{"containerPort": 65536}]), 422),
    "no port": post(PODS, container(ports=[{"name": "a"}]), 422),
    "two ports of one name": post(PODS, container(ports=[{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]), 422),
    "a port name that is too long": post(PODS, container(ports=[{"name": "a" * 16, "containerPort": 1}]), 422),
    "a variable without a name": post(PODS, container(env=[{"value": "1"}]), 422),
    "a mount of no volume": post(PODS, container(volumeMounts=[{"name": "v", "mountPath": "/v"}]), 422),
    "two volumes of one name": post(PODS, pod(volumes=[{"name": "v", "emptyDir": {}}] * 2), 422),
    "two mounts at one place": post(
        PODS,
        pod(
            volumes=[{"name": "v", "emptyDir": {}}],
            containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}] * 2}],
        ),
        422,
    ),
    "a request above the limit": post(PODS, container(resources={"limits": {"cpu": 1}, "requests": {"cpu": 2}}), 422),
    "two handlers in a probe": post(
        PODS, container(livenessProbe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}), 422
    ),
    "a probe without a handler": post(PODS, container(livenessProbe={"periodSeconds": 1}), 422),
    "a probe of a port that cannot be": post(PODS, container(readinessProbe={"httpGet": {"port": 0}}), 422),
    "a probe of no port's name": post(PODS, container(readinessProbe={"tcpSocket": {"port": "no name"}}), 422),
    "a probe by no command": post(PODS, container(readinessProbe={"exec": {}}), 422),
    "a probe with times below zero": post(
        PODS,
        container(
            livenessProbe={
                "exec": {"command": ["a"]}, "initialDelaySeconds": -1, "timeoutSeconds": -2, "periodSeconds": -3,
                "successThreshold": -4, "failureThreshold": -5, "terminationGracePeriodSeconds": -6,
            }
        ),
        422,
    ),
    "a startup probe that must succeed twice": post(
        PODS, container(startupProbe={"exec": {"command": ["a"]}, "successThreshold": 2}), 422
    ),
    "a readiness probe with a time to end": post(
        PODS, container(readinessProbe={"exec": {"command": ["a"]}, "terminationGracePeriodSeconds": 1}), 422
    ),
    "a probe of an init container": post(
        PODS, pod(initContainers=[{"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}}]), 422
    ),
    "a hook of an init container": post(
        PODS, pod(initContainers=[{"name": "i", "image": "i", "lifecycle": {"postStart": {"exec": {"command": ["a"]}}}}]), 422
    ),
    "a hook without a handler": post(PODS, container(lifecycle={"preStop": {}}), 422),
    "two handlers in a hook": post(
        PODS, container(lifecycle={"postStart": {"exec": {"command": ["a"]}, "httpGet": {"port": 1}}}), 422
    ),
    "a hook that sleeps for less than nothing": post(PODS, container(lifecycle={"preStop": {"sleep": {"seconds": -1}}}), 422),
    "GPU requests without limits": post(PODS, container(resources={"requests": {"nvidia.com/gpu": 1}}), 422),
    "GPU requests below the limit": post(
        PODS, container(resources={"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}), 422
    ),
    "half a GPU": post(PODS, container(resources={"limits": {"nvidia.com/gpu": "500m"}}), 422),
    "a resource of no form": post(PODS, container(resources={"limits": {"gpu": 1}}), 422),
    "a resource with a wrong name": post(PODS, container(resources={"limits": {"a b/c": 1}}), 422),
    "a path out of its volume": post(PODS, mounted(subPath="../a"), 422),
    "an absolute path in a volume": post(PODS, mounted(subPath="/a"), 422),
    "two paths in a volume": post(PODS, mounted(subPath="a", subPathExpr="b"), 422),
    "a written path out of its volume": post(PODS, mounted(subPathExpr="a/../$(B)"), 422),
    "an unsupported downward API field": post(PODS, container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodename"}}}]), 422),
    "a field without a path": post(PODS, container(env=[{"name": "A", "valueFrom": {"fieldRef": {}}}]), 422),
    "a label that cannot be": post(
        PODS, container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}]), 422
    ),
    "all labels in a variable": post(
        PODS, container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]), 422
    ),
    "an unsupported downward API resource": post(
        PODS, container(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpus"}}}]), 422
    ),
    "a variable from nowhere": post(PODS, container(env=[{"name": "A", "valueFrom": {}}]), 422),
    "a variable from two places": post(
        PODS,
        container(
            env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"}}}]
        ),
        422,
    ),
    "a variable of a key without a name": post(
        PODS, container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "", "key": ""}}}]), 422
    ),
    "all variables of nothing": post(PODS, container(envFrom=[{}]), 422),
    "all variables of two things": post(
        PODS, container(envFrom=[{"configMapRef": {"name": "a"}, "secretRef": {"name": "a"}}]), 422
    ),
    "modes out of range": post(
        PODS,
        pod(
            volumes=[
                {"name": "a", "configMap": {"name": "x", "defaultMode": 512, "items": [{"key": "k", "path": "p", "mode": -1}]}},
                {"name": "b", "secret": {"secretName": "x", "defaultMode": 644}},
                {"name": "c", "projected": {"defaultMode": 1000, "sources": [{"secret": {"name": "x", "items": [{"key": "k", "path": "p", "mode": 644}]}}]}},
                {"name": "d", "downwardAPI": {"defaultMode": 777, "items": [{"path": "p", "mode": 777, "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]
        ),
        422,
    ),
    "files outside of their volume": post(
        PODS,
        pod(
            volumes=[
                {"name": "a", "configMap": {"name": "x", "items": [{"key": "", "path": "../p"}]}},
                {"name": "b", "secret": {"secretName": "x", "items": [{"key": "k", "path": "/p"}]}},
                {"name": "d", "downwardAPI": {"items": [{"path": "..p", "fieldRef": {"fieldPath": "spec.nope"}}]}},
            ]
        ),
        422,
    ),
    "volumes without what they need": post(
        PODS,
        pod(
            volumes=[
                {"name": "a", "configMap": {}},
                {"name": "b", "secret": {}},
                {"name": "c", "persistentVolumeClaim": {}},
                {"name": "d", "hostPath": {"path": ""}},
                {"name": "e", "hostPath": {"path": "/a/../b"}},
            ]
        ),
        422,
    ),
    "two kinds of one volume": post(PODS, pod(volumes=[{"name": "v", "emptyDir": {}, "configMap": {"name": "x"}}]), 422),
    "an affinity to more than two numbers": post(PODS, pod(affinity=affinity(key="a", operator="Lt", values=["1", "2"])), 422),
    "an affinity to nothing in": post(PODS, pod(affinity=affinity(key="a", operator="In")), 422),
    "an affinity to what exists in": post(PODS, pod(affinity=affinity(key="a", operator="Exists", values=["b"])), 422),
    "an affinity to no terms": post(
        PODS, pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}), 422
    ),
    "a node label that cannot be": post(PODS, pod(nodeSelector={"a": "b c"}), 422),
    "a toleration of what exists by value": post(PODS, pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]), 422),
    "a port of no protocol": post(PODS, container(ports=[{"containerPort": 1, "protocol": "HTTP"}]), 422),
    "a host name with a dot": post(PODS, pod(hostname="a.b", subdomain="C"), 422),
    "a key in both": post(CONFIGMAPS, {**named("c"), "data": {"a": ""}, "binaryData": {"a": ""}}, 422),
    "data above 1 MiB": post(CONFIGMAPS, {**named("c"), "data": {"a": "x" * 2**20, "b": "x"}}, 422),
    "a secret above 1 MiB": post(SECRETS, {**named("s"), "stringData": {"a": "x" * 2**20, "b": "x"}}, 422),
    "a secret that is no base64": post(SECRETS, {**named("s"), "data": {"a": "b c!"}}, 400, ignore=("message",)),
    **{
        f"the key {key}": post(CONFIGMAPS, {**named("c"), "data": {key: ""}}, 422)
        for key in ("a b", "..", ".", "..a", "", "a" * 254)
    },
    "a key of bytes": post(CONFIGMAPS, {**named("c"), "binaryData": {"a/b": ""}}, 422),
    "a secret's key": post(SECRETS, {**named("s"), "stringData": {"a/b": ""}}, 422),
    "secrets without what their type needs": post(SECRETS, {**named("s"), "type": "kubernetes.io/tls", "data": {"tls.crt": ""}}, 422),
    "a toleration of nothing": post(PODS, pod(tolerations=[{"operator": "Equal", "value": "b"}]), 422),
    "a subscript of a name": post(
        PODS, container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['a']"}}}]), 422
    ),
    "a file of an amount of no container": post(
        PODS, pod(volumes=[{"name": "v", "downwardAPI": {"items": [{"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}}]}}]), 422
    ),
    "a file of nothing": post(PODS, pod(volumes=[{"name": "v", "downwardAPI": {"items": [{"path": "p"}]}}]), 422),
    "a job whose pods have a volume of no name": post(
        JOBS,
        {**named("j"), "spec": {"template": {"spec": {**pod(volumes=[{"name": "v", "configMap": {}}])["spec"], "restartPolicy": "Never"}}}},
        422,
    ),
    "half a port": post(PODS, container(ports=[{"containerPort": 1.5}]), 400),
    "a priority above the highest": post(PRIORITIES, {**named("{ns}"), "value": 2**31}, 400),
    "a priority above that of people": post(PRIORITIES, {**named("{ns}"), "value": 2 * 10**9}, 422),
    "a priority of the system's": post(PRIORITIES, {**named("system-mine"), "value": 1}, 422),
    "a priority that never or always": post(PRIORITIES, {**named("{ns}"), "value": 1, "preemptionPolicy": "Maybe"}, 422),
    "a label value": post(PODS, {**pod(), "metadata": {"name": "p", "labels": {"a": "-"}}}, 422),
    "a label key": post(PODS, {**pod(), "metadata": {"name": "p", "labels": {"a b": "c"}}}, 422),
    "an owner without uid": post(CONFIGMAPS, named("c", ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x"}]), 422),
    "two controllers": post(
        CONFIGMAPS,
        named("c", ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": u, "controller": True} for u in "ab"]),
        422,
    ),
    "a finalizer without a domain": post(CONFIGMAPS, named("c", finalizers=["mine"]), 422),
    "annotations of 1 MiB": post(CONFIGMAPS, named("c", annotations={"a": "x" * 2**20}), 422),
    "duplicate service ports": post(
        SERVICES, service({"port": 1, "name": "a"}, {"port": 1, "name": "b"}, clusterIP="None"), 422
    ),
    "duplicate service port names": post(
        SERVICES, service({"port": 1, "name": "a"}, {"port": 2, "name": "a"}, clusterIP="None"), 422
    ),
    "several service ports without names": post(SERVICES, service({"port": 1}, {"port": 2}, clusterIP="None"), 422),
    "a service without ports": post(SERVICES, service(), 422),
    "a service port out of range": post(SERVICES, service({"port": 0}, clusterIP="None"), 422),
    "a job whose pods always restart": post(
        JOBS, {**named("j"), "spec": {"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}}}}, 422
    ),
    "a job of more successes than completions": post(JOBS, indexed_job(successPolicy={"rules": [{"succeededCount": 6}]}), 422),
    "a job of more successes than listed indexes": post(
        JOBS, indexed_job(successPolicy={"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 4}]}), 422
    ),
    "a job with exit codes of no container": post(
        JOBS,
        indexed_job(
            podFailurePolicy={
                "rules": [{"action": "FailJob", "onExitCodes": {"containerName": "x", "operator": "In", "values": [1]}}]
            }
        ),
        422,
    ),
    "a job with a negative limit per index": post(JOBS, indexed_job(backoffLimitPerIndex=-1, maxFailedIndexes=-1), 422),
    "a job with limits per index and no indexes": post(
        JOBS, indexed_job(completionMode="NonIndexed", backoffLimitPerIndex=1, maxFailedIndexes=1), 422
    ),
    "an autoscaler without maximum": post(
        AUTOSCALERS, {**named("h"), "spec": {"maxReplicas": 0, "scaleTargetRef": {"kind": "PyTorchJob", "name": "x"}}}, 422
    ),
    "a claim of nothing": post(CLAIMS, {**named("c"), "spec": {}}, 422),
    "a volume of nothing": post("/api/v1/persistentvolumes", {**named("{ns}"), "spec": {}}, 422),
    "a storage class without a provisioner": post("/apis/storage.k8s.io/v1/storageclasses", named("{ns}"), 422),
    "a namespace with capitals": post("/api/v1/namespaces", named("X"), 422),
    "an event about another namespace": post(
        "/api/v1/namespaces/{ns}/events", {**named("e"), "involvedObject": {"kind": "Pod", "name": "x", "namespace": "other"}}, 422
    ),
    "text for a list": post(PODS, pod(containers="x"), 400),
    "a number for text": post(PODS, container(command=[1]), 400),
    "text for a number": post(PODS, container(ports=[{"containerPort": "x"}]), 400),
    "text for a boolean": post(PODS, pod(hostNetwork="yes"), 400),
    "a number for a label": post(CONFIGMAPS, named("c", labels={"a": 1}), 400),
    "another kind": post(PODS, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}, 400, ignore=("message",)),
    "another namespace": post(PODS, {**pod(), "metadata": {"name": "p", "namespace": "other"}}, 400),
    "no such namespace": post("/api/v1/namespaces/nowhere/pods", pod(), 404),
    "a strict unknown field": post(PODS, container(colour="red"), 400, query={"fieldValidation": "Strict"}),
    "several strict unknown fields": post(
        PODS, {**container(colour="red"), "unheard": 1}, 400, query={"fieldValidation": "Strict"}
    ),
    "an unknown validation": post(PODS, pod(), 422, query={"fieldValidation": "Some"}),
    "an unknown dry run": post(PODS, pod(), 422, query={"dryRun": "Some"}),
    "a version that cannot be": post(CONFIGMAPS, named("c", resourceVersion="5"), 500),
    "no JSON": post(PODS, None, 400, raw=b'{"metadata":', ignore=("message",)),
    "JSON that is no object": post(PODS, None, 400, raw=b"[]", ignore=("message",)),
    "an unknown media type": post(PODS, None, 415, type="text/plain", raw=b"{}"),
    "no such resource": post("/api/v1/namespaces/{ns}/pogs", {}, 404),
    "no such group": post("/apis/nowhere.example.com/v1/namespaces/{ns}/pods", {}, 404),
    "no namespace": post("/api/v1/pods", pod(), 405),
    "a name in the path": post(f"{PODS}/p", pod(), 405),
}  # fmt: skip


@pytest.mark.parametrize("step", TAKEN.values(), ids=TAKEN.keys())
async def test_accepted(both: Both, step: Step) -> None:
    await both.agree([step])


@pytest.mark.parametrize("step", REFUSED.values(), ids=REFUSED.keys())
async def test_rejected(both: Both, step: Step) -> None:
    await both.agree([step])


async def test_a_duplicate_name_is_a_conflict(both: Both) -> None:
    await both.agree([post(PODS, pod()), post(PODS, pod(), 409)])


async def test_a_dry_run_creates_nothing(both: Both) -> None:
    await both.agree([post(PODS, pod(), query={"dryRun": "All"}), Step("GET", f"{PODS}/p", code=404)])


async def test_generated_names(both: Both) -> None:
    generated = {**pod(), "metadata": {"generateName": "worker-"}}

    await both.agree(
        [
            post(PODS, generated, ignore=("metadata.name",)),
            Step("GET", f"{PODS}/$1.metadata.name", ignore=("metadata.name",)),
        ]
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(container(resources={"requests": {"cpu": "abc"}}), id="a request"),
        pytest.param(pod(overhead={"cpu": "1.5.5"}), id="overhead"),
        pytest.param(
            pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "zzz"}}]), id="the size of a volume"
        ),
    ],
)
async def test_an_invalid_quantity_is_rejected(both: Both, body: dict[str, Any]) -> None:
    await both.agree([post(PODS, body, 400)])


async def test_a_claim_with_an_invalid_quantity_is_rejected(both: Both) -> None:
    resources = {"requests": {"storage": "lots"}}
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
    await both.agree([post(CLAIMS, claim, 400)])


async def test_a_job_with_an_invalid_quantity_is_rejected(both: Both) -> None:
    template = {"spec": {**container(resources={"limits": {"cpu": "abc"}})["spec"], "restartPolicy": "Never"}}
    await both.agree([post(JOBS, {**named("j"), "spec": {"template": template}}, 400)])
