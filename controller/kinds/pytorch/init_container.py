"""The init container that waits until a pod's name resolves, or what the settings have in its place.

Source: training-operator 1.9, pkg/controller.v1/pytorch/initcontainer.go.
"""

import re
from typing import Any

from controller.kind.security import RESTRICTED
from controller.kinds.pytorch.options import PyTorchOptions

_FIELD = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
_LOOP = "err=1;for i in $(seq {tries}); do if nslookup {address}; then err=0 && break; fi;echo waiting for master; sleep 2; done; exit $err"


def until_resolved(name: str, address: str, options: PyTorchOptions) -> list[dict[str, Any]]:
    """What runs before a pod's containers: a container of that name, which waits for that address.

    Differs: carries a security context that a restricted namespace accepts, and text is put into the template as it is, without HTML
    escapes. See docs/decisions/0006-init-container.md.
    """
    if not options.init_container:
        return []
    if options.init_container_template:
        return from_template(options, address)
    script = _LOOP.format(tries=options.init_container_max_tries, address=address)
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
    """The containers that the user's template makes of the master's address.

    Raises:
        ValueError: it is no YAML, or no list of containers with names.
    """
    import yaml

    values = {
        "MasterAddr": address,
        "InitContainerImage": options.init_container_image,
        "MaxTries": str(options.init_container_max_tries),
    }
    text = _FIELD.sub(lambda found: values.get(found[1], found[0]), options.init_container_template)
    try:
        containers = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from error
    if not isinstance(containers, list):
        raise ValueError("it is no list of containers")
    for number, container in enumerate(containers, 1):
        if (
            not isinstance(container, dict)
            or not isinstance(container.get("name"), str)
            or not container["name"]
        ):
            raise ValueError(f"entry {number} of its list is no container with a name")
    return containers
