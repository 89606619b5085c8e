"""Writes ``deploy`` from ``manifests``: what ``kubectl apply -f`` takes, one file for each way to install, and the Helm chart.

    .venv/bin/python tools/deploy.py [FOLDER]

Before that, all kinds are named where ``manifests`` has to name them. The test beside it asks for the same files, and
``kubectl kustomize`` makes the same objects of the same folders.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from controller.crds import all_crds
from controller.crds.files import HEADER, file_name, to_yaml
from controller.kind import JobKind
from controller.kinds import ALL, DEFAULT
from controller.kinds.mpi import MPI
from rallypoint.testing.manifests import build
from tools.chart.__main__ import CHART
from tools.chart.__main__ import write as write_chart
from tools.chart.templates import is_cluster_wide

ROOT = Path(__file__).parents[1]
SOURCES = {
    "crds.yaml": Path("manifests/base/crds"),
    "standalone.yaml": Path("manifests/overlays/standalone"),
}
"""File in ``deploy`` → the kustomization that it is rendered from."""
DEFINITIONS = Path("manifests/base/crds/kustomization.yaml")
COMPONENTS = Path("manifests/components")
"""Where an opt-in kind has a folder of its name, with its definition in it."""
ROLE = Path("manifests/base/rbac/cluster-role.yaml")
SHADOW_ROLE = Path("manifests/overlays/shadow/cluster-role.yaml")
MPI_ROLE = Path("manifests/components/mpi/cluster-role.yaml")
NAMESPACED_ROLES = (Path("manifests/base/rbac/role.yaml"), ROLE, MPI_ROLE)
"""The roles whose rules the Role of an operator for one namespace has."""
NAMESPACED_ROLE = Path("manifests/overlays/namespaced/role.yaml")
WITHOUT_MPI = Path("manifests/overlays/without-mpi/served-kinds.yaml")
INSTALLATION = Path("rallypoint/cli/check/installation.json")
"""The copy that ``rallypoint check`` reads."""
CHECKED_ROLES = {
    "base": ROLE,
    "leases": NAMESPACED_ROLES[0],
    "mpi": MPI_ROLE,
    "shadow": SHADOW_ROLE,
}
"""The roles whose rules ``rallypoint check`` compares with the rights of the operator. Those of all other components have their name."""
USER_ROLES = [Path(f"manifests/components/user-roles/{name}.yaml") for name in ("edit", "view")]
SERVED_HEADER = "# Made by `make deploy`. With --enable-scheme the controller serves the named kinds only.\n"
NAMESPACED_HEADER = (
    "# Made by `make deploy`: the rules of the base and of the component mpi, in one namespace.\n"
)
_JOBS = re.compile(r"(?<=- apiGroups: \[kubeflow\.org\]\n  resources: \[)[a-z]+(?P<part>[/a-z]*)[^\]]*")
"""In the role: what is granted of jobs, or of a part of them."""


def naming_kinds() -> dict[Path, str]:
    """The files in ``manifests`` that name every kind of the default installation, and the definitions of the others, as they have to be."""
    roles = {role: _naming(role, DEFAULT) for role in (ROLE, SHADOW_ROLE)}
    in_order = sorted(DEFAULT, key=lambda kind: kind.resource.plural)
    roles |= {path: _naming(path, in_order) for path in USER_ROLES}
    roles[NAMESPACED_ROLE] = _namespaced(
        [roles.get(path) or (ROOT / path).read_text(encoding="utf-8") for path in NAMESPACED_ROLES]
    )
    head, _, _ = (ROOT / DEFINITIONS).read_text(encoding="utf-8").partition("- ")
    files = sorted(map(file_name, all_crds(kinds=DEFAULT)))
    components = {
        COMPONENTS / kind.resource.singular / file_name(definition): HEADER + to_yaml(definition)
        for kind in ALL
        if kind.is_opt_in
        for definition in all_crds(kinds=[kind])
    }
    for kind in ALL:
        if kind.is_opt_in:
            components[COMPONENTS / kind.resource.singular / "served-kinds.yaml"] = _served((*DEFAULT, kind))
    components[WITHOUT_MPI] = _served(kind for kind in DEFAULT if kind is not MPI)
    return {DEFINITIONS: head + "".join(f"- {name}\n" for name in files), **roles, **components}


def _naming(role: Path, kinds: Iterable[JobKind[Any]]) -> str:
    """The text of the role with these kinds; only some have the subresource ``scale``."""
    return _JOBS.sub(
        lambda found: ", ".join(
            f"{kind.resource.plural}{found['part']}"
            for kind in kinds
            if kind.scalable or found["part"] != "/scale"
        ),
        (ROOT / role).read_text(encoding="utf-8"),
    )


def _namespaced(roles: Iterable[str]) -> str:
    """The text of the Role with the rules of these roles that are not cluster-scoped."""
    rules = [rule for role in roles for rule in yaml.safe_load(role)["rules"] if not is_cluster_wide(rule)]
    name = "training-operator"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "labels": {"app": name}},
        "rules": rules,
    }
    return NAMESPACED_HEADER + to_yaml(role)


def _served(kinds: Iterable[JobKind[Any]]) -> str:
    """The patch of the Deployment by which the controller serves these kinds."""
    add = "- {op: add, path: /spec/template/spec/containers/0/args/-, value: --enable-scheme=%s}\n"
    return SERVED_HEADER + "".join(add % kind.resource.kind for kind in kinds)


def installation() -> str:
    """The objects of the standalone installation and the rules of all roles, for ``rallypoint check``."""
    components = {path.parent.name: path for path in sorted((ROOT / COMPONENTS).glob("*/cluster-role.yaml"))}
    roles = components | {name: ROOT / path for name, path in CHECKED_ROLES.items()}
    found = {
        "objects": [
            document
            for document in build(ROOT / SOURCES["standalone.yaml"])
            if document["kind"] != "CustomResourceDefinition"
        ],
        "roles": {
            name: yaml.safe_load(path.read_text(encoding="utf-8"))["rules"]
            for name, path in sorted(roles.items())
        },
    }
    return json.dumps(found, indent=1) + "\n"


def write(folder: Path) -> list[Path]:
    """Write all files into ``folder``, which is made if need be; files of other names stay."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, source in SOURCES.items():
        header = f"# Made by `make deploy` from {source.as_posix()}; edit that instead.\n"
        path = folder / name
        path.write_text(header + "".join(map(to_yaml, build(ROOT / source))), encoding="utf-8")
        paths.append(path)
    return paths


def main(arguments: list[str]) -> int:
    for path, text in naming_kinds().items():
        (ROOT / path).write_text(text, encoding="utf-8")
    if not arguments:
        (ROOT / INSTALLATION).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / INSTALLATION).write_text(installation(), encoding="utf-8")
    for path in write(Path(arguments[0]) if arguments else ROOT / "deploy"):
        print(path)
    if not arguments:
        write_chart(CHART)
        print(CHART)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
