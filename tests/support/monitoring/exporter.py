"""Series of DCGM and of the kubelet for simulated pods, in the formats of dcgm-exporter and of cAdvisor.

Simulated: there is no GPU and no container. Names and labels are those of dcgm-exporter 3.3 and of the kubelet's ``/metrics/cadvisor``;
the values are made up.
"""

import math
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

GPU = "nvidia.com/gpu"
Pods = Callable[[], list[Any]]


def dcgm(pods: Pods, node: str) -> str:
    """Return what dcgm-exporter of a node says about the GPUs of its running pods."""
    gauges: dict[str, list[str]] = {}
    for pod in _running(pods):
        if pod["spec"]["nodeName"] != node:
            continue
        container = pod["spec"]["containers"][0]
        first = _number(pod)
        limits = container.get("resources", {}).get("limits", {})
        for number in range(first, first + int(limits.get(GPU, "0"))):
            labels = _labels(
                gpu=str(number % 8),
                UUID=f"GPU-{pod['metadata']['uid'][:8]}-{number}",
                pci_bus_id=f"00000000:{number % 8:02X}:00.0",
                device=f"nvidia{number % 8}",
                modelName="NVIDIA H100 80GB HBM3",
                Hostname=node,
                DCGM_FI_DRIVER_VERSION="550.54.15",
                container=container["name"],
                namespace=pod["metadata"]["namespace"],
                pod=pod["metadata"]["name"],
            )
            busy = _wave(number, 20.0)
            for name, value in (
                ("DCGM_FI_DEV_GPU_UTIL", round(100 * busy)),
                ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.55 * busy),
                ("DCGM_FI_DEV_FB_USED", 61_000 + 900 * number % 4000),
                ("DCGM_FI_DEV_POWER_USAGE", 130 + 500 * busy),
                ("DCGM_FI_DEV_GPU_TEMP", round(35 + 30 * busy)),
                ("DCGM_FI_DEV_XID_ERRORS", 0),
            ):
                gauges.setdefault(name, []).append(f"{name}{{{labels}}} {value:.6g}")
    return _exposition(gauges, "gauge")


def cadvisor(pods: Pods, started: float) -> str:
    """Return what the kubelets say about the containers of running pods."""
    age = time.time() - started
    counters: dict[str, list[str]] = {}
    gauges: dict[str, list[str]] = {}
    for pod in _running(pods):
        number = _number(pod)
        namespace, name, uid = (pod["metadata"][field] for field in ("namespace", "name", "uid"))
        place = f"/kubepods.slice/kubepods-pod{uid}.slice"
        whole = _labels(container="", id=place, image="", name="", namespace=namespace, pod=name)
        container = pod["spec"]["containers"][0]
        inner = _labels(
            container=container["name"],
            id=f"{place}/cri-containerd-{number}.scope",
            image=container["image"],
            name=str(number),
            namespace=namespace,
            pod=name,
        )
        cores, memory = 6 + number % 5, (20 + 8 * _wave(number, 40.0)) * 2**30
        for labels in (whole, inner):
            counters.setdefault("container_cpu_usage_seconds_total", []).append(
                f'container_cpu_usage_seconds_total{{{labels},cpu="total"}} {age * cores:.6f}'
            )
            gauges.setdefault("container_memory_working_set_bytes", []).append(
                f"container_memory_working_set_bytes{{{labels}}} {memory:.0f}"
            )
        for direction, rate in (("receive", 1.3e8), ("transmit", 1.2e8)):
            family = f"container_network_{direction}_bytes_total"
            counters.setdefault(family, []).append(
                f'{family}{{{whole},interface="eth0"}} {age * rate * (1 + number % 3):.0f}'
            )
    return _exposition(counters, "counter") + _exposition(gauges, "gauge")


@contextmanager
def exporter(pods: Pods) -> Generator[str]:
    """Serve ``/dcgm/NODE`` and ``/cadvisor`` until the end of the block; yield the address."""
    started = time.time() - 60

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, *node = self.path.split("/")
            body = (dcgm(pods, *node) if kind == "dcgm" else cadvisor(pods, started)).encode()
            with suppress(ConnectionError):  # Prometheus does not wait any longer
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _running(pods: Pods) -> Iterator[Any]:
    return (pod for pod in pods() if pod["status"].get("phase") == "Running" and pod["spec"].get("nodeName"))


def _number(pod: Any) -> int:
    """Return a number of the pod that stays."""
    return zlib.crc32(pod["metadata"]["uid"].encode()) % 1000


def _wave(number: int, period_seconds: float) -> float:
    """Return a value between 0.7 and 1 that changes over time."""
    return 0.85 + 0.15 * math.sin(2 * math.pi * time.time() / period_seconds + number)


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _exposition(families: dict[str, list[str]], kind: str) -> str:
    return "".join(
        f"# TYPE {name} {kind}\n" + "\n".join(samples) + "\n" for name, samples in families.items()
    )
