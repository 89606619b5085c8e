"""The init container that waits until a pod's name resolves, or the containers of the template file.

Source: training-operator 1.9, pkg/controller.v1/pytorch/initcontainer.go.
"""

import re
from functools import lru_cache
from typing import Any

from controller.kind.security import RESTRICTED
from controller.kinds.pytorch.options import PyTorchOptions

_FIELD = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
_LOOP = "err=1;for i in $(seq {tries}); do if nslookup {address}; then err=0 && break; fi;echo waiting for master; sleep 2; done; exit $err"
_DOMAIN = (
    'while read -r key first rest; do if [ "$key" = search ]; then domain=$first; fi; done </etc/resolv.conf;'
)
"""Sets the domain of the pod's namespace, which is the first that the resolver adds to a name."""


def until_resolved(
    name: str, address: str, options: PyTorchOptions, full_address: str = ""
) -> list[dict[str, Any]]:
    """Return the init containers of a pod: one of that name, which waits for that address.

    BusyBox's nslookup adds no domain to a name with a dot, as the address has in a job with one Service. The built-in container adds it
    itself; containers of a template file get ``full_address``, if there is one.

    Source of that: https://github.com/docker-library/busybox/issues/61.

    Differs: it has a security context that a restricted namespace accepts, and values are inserted into the template without HTML
    escapes. See docs/decisions/0006-init-container.md.
    """
    if not options.init_container:
        return []
    if options.init_container_template:
        return from_template(options, full_address or address)
    looked_up, before = address, ""
    if "." in address:
        looked_up, before = f"{address} || nslookup {address}.$domain", _DOMAIN
    script = before + _LOOP.format(tries=options.init_container_max_tries, address=looked_up)
    return [
        {
            "name": name,
            "image": options.init_container_image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "resources": {
                "limits": {"cpu": "100m", "memory": "20Mi"},
                "requests": {"cpu": "50m", "memory": "10Mi"},
            },
            "securityContext": RESTRICTED,
        }
    ]


def from_template(options: PyTorchOptions, address: str) -> list[dict[str, Any]]:
    """Return the containers of the user's template with the master's address.

    Raises:
        ValueError: it is not YAML, or not a list of containers with names.
    """
    values = {
        "MasterAddr": address,
        "InitContainerImage": options.init_container_image,
        "MaxTries": str(options.init_container_max_tries),
    }
    return list(
        _parsed(_FIELD.sub(lambda found: values.get(found[1], found[0]), options.init_container_template))
    )


@lru_cache(maxsize=16)
def _parsed(text: str) -> tuple[dict[str, Any], ...]:
    """Return the containers of a template; all workers of a job have the same."""
    import yaml

    try:
        containers = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {error}") from error
    if not isinstance(containers, list):
        raise ValueError("it is not a list of containers")
    for number, container in enumerate(containers, 1):
        if (
            not isinstance(container, dict)
            or not isinstance(container.get("name"), str)
            or not container["name"]
        ):
            raise ValueError(f"entry {number} of its list is not a container with a name")
    return tuple(containers)
