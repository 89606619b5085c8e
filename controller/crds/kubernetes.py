"""The Kubernetes types that the schemas contain: those of the shipped release, or of a cluster.

``controller.crds.refresh`` writes the file from an API server; never edit it by hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import orjson

from controller.crds.openapi import (
    LABEL_SELECTOR,
    METRIC_SPEC,
    POD_TEMPLATE,
    Schema,
    inline,
    select,
    with_atomic_lists,
)
from controller.kube.client import Client

ROOTS = (POD_TEMPLATE, METRIC_SPEC, LABEL_SELECTOR)
DOCUMENTS = ("/openapi/v3/api/v1", "/openapi/v3/apis/autoscaling/v2")
FILE = "kubernetes.json"


@dataclass(frozen=True, slots=True)
class Release:
    """A release's ``version``, such as v1.37.2, and its definitions by name, reduced and with references."""

    version: str
    definitions: Mapping[str, Schema]

    @classmethod
    def from_json(cls, text: bytes) -> "Release":
        document = orjson.loads(text)
        return cls(document["version"], document["definitions"])

    def to_json(self) -> bytes:
        """Return JSON with one definition per line, so that a diff between releases is readable."""
        lines = [f"    {_text(name)}: {_text(schema)}" for name, schema in self.definitions.items()]
        definitions = ",\n".join(lines)
        return f'{{\n  "version": {_text(self.version)},\n  "definitions": {{\n{definitions}\n  }}\n}}\n'.encode()


@dataclass(frozen=True, slots=True)
class PodSchemas:
    """The structural schemas that complete a job's schema, and the Kubernetes ``version`` that they come from."""

    version: str
    template: Schema
    metric_spec: Schema
    label_selector: Schema

    def with_atomic_templates(self) -> "PodSchemas":
        """Return the same with atomic lists in pod templates, which cost the API server less in each write of a job."""
        return replace(self, template=with_atomic_lists(self.template))


def pod_schemas(release: Release) -> PodSchemas:
    return PodSchemas(
        version=release.version,
        template=inline(release.definitions, POD_TEMPLATE),
        metric_spec=inline(release.definitions, METRIC_SPEC),
        label_selector=inline(release.definitions, LABEL_SELECTOR),
    )


@cache
def shipped() -> PodSchemas:
    """Return the schemas of the shipped release."""
    return pod_schemas(Release.from_json(Path(__file__).with_name(FILE).read_bytes()))


async def ask(client: Client) -> Release:
    """Return the release that a cluster runs. Raises the client's errors, and NotFound for an API server older than 1.27."""
    published: dict[str, Schema] = {}
    for path in DOCUMENTS:
        document = orjson.loads(await client.request("GET", path))
        published |= document["components"]["schemas"]
    version = orjson.loads(await client.request("GET", "/version"))["gitVersion"]
    return Release(version, select(published, ROOTS))


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
