"""Validation of probes and lifecycle hooks.

Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

from collections.abc import Callable, Iterator

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS = ("postStart", "preStop")
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
COUNTERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def validate_lifecycle(container: Json, path: str, grace_seconds: int) -> Iterator[FieldError]:
    """Validate the hooks and probes of a container; ``grace_seconds`` is that of the pod."""
    for hook in HOOKS:
        handler = (container.get("lifecycle") or {}).get(hook)
        if handler is not None:
            yield from _handler(handler, f"{path}.lifecycle.{hook}", grace_seconds)
    for name in PROBES:
        if container.get(name) is not None:
            yield from _probe(name, container[name], f"{path}.{name}", grace_seconds)


def validate_init_container(container: Json, path: str) -> Iterator[FieldError]:
    """Reject hooks and probes of an init container that is no sidecar."""
    for name in ("lifecycle", *PROBES):
        if container.get(name) is not None:
            detail = "may not be set for init containers without restartPolicy=Always"
            yield field_errors.forbidden(f"{path}.{name}", detail)


def _probe(name: str, probe: Json, path: str, grace_seconds: int) -> Iterator[FieldError]:
    yield from _handler(probe, path, grace_seconds)
    for counter in COUNTERS:
        if probe.get(counter, 0) < 0:
            yield field_errors.negative(f"{path}.{counter}", probe[counter])
    own = probe.get("terminationGracePeriodSeconds")
    if own is not None and own <= 0:
        yield field_errors.invalid(f"{path}.terminationGracePeriodSeconds", own, "must be greater than 0")
    if name == "readinessProbe":
        if own is not None:
            detail = "must not be set for readinessProbes"
            yield field_errors.invalid(f"{path}.terminationGracePeriodSeconds", own, detail)
    elif probe.get("successThreshold", 1) != 1:
        yield field_errors.invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(holder: Json, path: str, grace_seconds: int) -> Iterator[FieldError]:
    handlers = [name for name in HANDLERS if holder.get(name) is not None]
    if not handlers:
        yield field_errors.required(path, "must specify a handler type")
        return
    first, *others = handlers
    if first == "sleep":
        yield from _sleep(holder["sleep"], f"{path}.sleep", grace_seconds)
    else:
        yield from CHECKS[first](holder[first], f"{path}.{first}")
    for name in others:
        yield field_errors.forbidden(f"{path}.{name}", "may not specify more than 1 handler type")


def _sleep(action: Json, path: str, grace_seconds: int) -> Iterator[FieldError]:
    seconds = action.get("seconds", 0)
    if not 0 <= seconds <= grace_seconds:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds})"
        yield field_errors.invalid(path, seconds, detail)


def _command(action: Json, path: str) -> Iterator[FieldError]:
    if not action.get("command"):
        yield field_errors.required(f"{path}.command")


def _http(action: Json, path: str) -> Iterator[FieldError]:
    yield from _port(action, path)
    for header in action.get("httpHeaders") or ():
        name = header.get("name", "")
        if wrong := names.header(name):
            yield field_errors.invalid(f"{path}.httpHeaders", name, wrong)


def _port(action: Json, path: str) -> Iterator[FieldError]:
    port = action.get("port", 0)
    if wrong := names.port(port):
        yield field_errors.invalid(f"{path}.port", port, wrong)


CHECKS: dict[str, Callable[[Json, str], Iterator[FieldError]]] = {
    "exec": _command,
    "httpGet": _http,
    "tcpSocket": _port,
    "grpc": _port,
}
