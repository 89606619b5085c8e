"""Validation of the names and addresses that a pod resolves: ``hostAliases`` and ``dnsConfig``.

Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json

MOST_NAMESERVERS = 3


def validate(spec: Json, path: str) -> Iterator[FieldError]:
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        item_path = f"{path}.hostAliases[{i}]"
        if wrong := names.ip_address(alias.get("ip", "")):
            yield field_errors.invalid(f"{item_path}.ip", alias.get("ip", ""), wrong)
        for j, hostname in enumerate(alias.get("hostnames") or ()):
            if wrong := names.subdomain(hostname):
                yield field_errors.invalid(f"{item_path}.hostnames[{j}]", hostname, wrong)
    yield from _dns(spec.get("dnsConfig"), f"{path}.dnsConfig", needed=spec.get("dnsPolicy") == "None")


def _dns(config: Json | None, path: str, *, needed: bool) -> Iterator[FieldError]:
    """Validate the DNS parameters of a pod; they are ``needed`` under the policy None."""
    if config is None:
        if needed:
            yield field_errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
        return
    nameservers = config.get("nameservers") or ()
    if needed and not nameservers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield field_errors.required(f"{path}.nameservers", detail)
    if len(nameservers) > MOST_NAMESERVERS:
        detail = f"must not have more than {MOST_NAMESERVERS} nameservers"
        yield field_errors.invalid(f"{path}.nameservers", nameservers, detail)
    for i, address in enumerate(nameservers):
        if wrong := names.ip_address(address):
            yield field_errors.invalid(f"{path}.nameservers[{i}]", address, wrong)
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield field_errors.required(f"{path}.options[{i}]", "must not be empty")
