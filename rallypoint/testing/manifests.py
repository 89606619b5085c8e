"""Builds the objects of a kustomization without kustomize, as far as ``manifests`` uses its features.

An unknown field raises, so that no test passes with objects that kustomize would build differently.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

_UNDERSTOOD = {
    "apiVersion", "kind", "resources", "components", "namespace", "images", "patches", "configMapGenerator", "generatorOptions",
}  # fmt: skip
_CLUSTER_SCOPED = {
    "Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "FlowSchema", "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
}  # fmt: skip
"""kustomize 5.8 adds a namespace to FlowSchemas, which the API server removes."""


def build(folder: Path) -> list[Document]:
    """Return the objects of the kustomization in ``folder``, in the order in which it names them.

    Raises:
        ValueError: it has an unknown field.
    """
    return _add(folder, [])


def _add(folder: Path, before: list[Document]) -> list[Document]:
    """Return the objects of the kustomization after those in ``before``; a component patches them all."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := kustomization.keys() - _UNDERSTOOD:
        raise ValueError(f"{folder}: {', '.join(sorted(unknown))} is not understood")
    documents = [
        *before,
        *(document for name in kustomization["resources"] for document in _read(folder / name)),
        *_config_maps(folder, kustomization),
    ]
    for name in kustomization.get("components", ()):
        documents = _add(folder / name, documents)
    for patch in kustomization.get("patches", ()):
        _patch(documents, patch["target"], yaml.safe_load((folder / patch["path"]).read_text()))
    for document in documents:
        if namespace := kustomization.get("namespace"):
            _set_namespace(document, namespace)
        for image in kustomization.get("images", ()):
            _tag(document, image["name"], image["newTag"])
    return documents


def _read(path: Path) -> list[Document]:
    if path.is_dir():
        return build(path)
    return [document for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if document]


def _config_maps(folder: Path, kustomization: Document) -> Iterator[Document]:
    """Yield the generated ConfigMaps, whose names have no hash and whose keys are names of files."""
    options = kustomization.get("generatorOptions", {})
    for generator in kustomization.get("configMapGenerator", ()):
        if not options.get("disableNameSuffixHash") or generator.keys() != {"name", "files"}:
            raise ValueError(f"the generator {generator} is not understood")
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": generator["name"], "labels": dict(options["labels"])},
            "data": {Path(name).name: (folder / name).read_text() for name in generator["files"]},
        }


def _patch(documents: list[Document], target: Mapping[str, str], operations: list[dict[str, Any]]) -> None:
    """Apply operations that append to lists, add fields or replace values; no other operation of RFC 6902 is supported.

    As kustomize does, take the target's name as a regular expression.
    """
    for document in documents:
        if document["kind"] != target["kind"] or not re.fullmatch(
            target["name"], document["metadata"]["name"]
        ):
            continue
        for operation in operations:
            *steps, end = (step.replace("~1", "/") for step in operation["path"].strip("/").split("/"))
            parent: Any = document
            for step in steps:
                parent = parent[int(step) if isinstance(parent, list) else step]
            if (operation["op"], end) == ("add", "-"):
                parent.append(operation["value"])
            elif operation["op"] == "add" and isinstance(parent, dict):
                parent[end] = operation["value"]
            elif operation["op"] == "replace":
                parent[int(end) if isinstance(parent, list) else end] = operation["value"]
            else:
                raise ValueError(f"the patch {operation} is not understood")


def _set_namespace(document: Document, namespace: str) -> None:
    if document["kind"] == "Namespace":
        document["metadata"]["name"] = namespace
    elif document["kind"] not in _CLUSTER_SCOPED:
        document["metadata"]["namespace"] = namespace
    for subject in document.get("subjects", ()):
        subject["namespace"] = namespace


def _tag(document: Document, name: str, tag: str) -> None:
    for container in _containers(document):
        if container["image"] == name:
            container["image"] = f"{name}:{tag}"


def _containers(document: Document) -> Iterator[Document]:
    if document["kind"] == "Deployment":
        yield from document["spec"]["template"]["spec"]["containers"]
