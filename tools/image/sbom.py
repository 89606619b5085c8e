"""The bill of materials of an image (CycloneDX 1.6), and the check that it lists exactly what the image contains.

Source: CycloneDX 1.6; Package URL specification, types deb, pypi and oci.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from email.parser import BytesParser, Parser
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from cyclonedx import spdx
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

from tools.image import ImageError
from tools.image.files import Component, File, Folder, Link, Tree
from tools.image.wheels import SITE_PACKAGES

_DPKG = "var/lib/dpkg"


def build(components: Sequence[Component], image: Mapping[str, str], architecture: str) -> dict[str, Any]:
    """Return the bill of materials.

    Args:
        image: ``name``, ``version``, ``digest``, ``created`` and ``license`` of the image.
        architecture: of the image, as Debian writes it.
    """
    files = {path: entry for component in components for path, entry in component.files.items()}
    distribution = _distribution(files)
    root = {
        "type": "container",
        "bom-ref": "image",
        "name": image["name"],
        "version": image["version"],
        "purl": f"pkg:oci/{image['name']}@{quote(image['digest'], safe='')}?arch={architecture}",
        "licenses": _licenses([image["license"]]),
        "hashes": [{"alg": "SHA-256", "content": image["digest"].removeprefix("sha256:")}],
    }
    listed = []
    for component in sorted(components, key=lambda component: (component.ecosystem, component.name)):
        purl = _purl(
            component.ecosystem,
            component.name,
            component.version,
            Parser().parsestr(component.control)["Architecture"],
            distribution,
        )
        listed.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": component.name,
                "version": component.version,
                "purl": purl,
                "licenses": _licenses(component.licenses),
                "hashes": [{"alg": "SHA-256", "content": component.sha256}],
            }
        )
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, image['digest'])}",
        "version": 1,
        "metadata": {"timestamp": image["created"], "component": root},
        "components": listed,
        "dependencies": [{"ref": "image", "dependsOn": [entry["bom-ref"] for entry in listed]}],
    }


def check(bom: Mapping[str, Any], layers: Sequence[Tree], generated: Iterable[str]) -> None:
    """Compare a bill of materials with the files of the image's layers.

    Args:
        generated: paths of the files that belong to no package.

    Raises:
        ImageError: it does not follow its schema, a component is on one side only, a file belongs to no component or to several, or has
            another content than its component's own list says.
    """
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom)):
        raise ImageError(f"the bill of materials does not follow CycloneDX 1.6: {error}")
    tree = {path: entry for layer in layers for path, entry in layer.items()}
    if len(tree) < sum(not isinstance(entry, Folder) for layer in layers for entry in layer.values()):
        twice = [
            path
            for path, entry in tree.items()
            if sum(path in layer for layer in layers) > 1 and not isinstance(entry, Folder)
        ]
        raise ImageError(f"files in more than one layer: {', '.join(twice)}")
    installed: set[str] = set()
    owned: dict[str, str] = {}
    problems: list[str] = []
    for purl, files in [*_debian(tree), *_python(tree)]:
        installed.add(purl)
        for path, is_equal in files.items():
            if path in owned:
                problems.append(f"/{path} belongs to {owned[path]} and to {purl}")
            if not is_equal:
                problems.append(f"/{path} is not as {purl} lists it")
            owned[path] = purl
    listed = {component["purl"] for component in bom["components"]}
    problems += [f"{purl} is in the image only" for purl in sorted(installed - listed)]
    problems += [f"{purl} is in the bill of materials only" for purl in sorted(listed - installed)]
    known = {*owned, *generated}
    problems += [
        f"/{path} belongs to no component"
        for path, entry in sorted(tree.items())
        if path not in known and not isinstance(entry, Folder) and not path.startswith(f"{_DPKG}/")
    ]
    if problems:
        raise ImageError("the bill of materials differs from the image:\n" + "\n".join(problems))


def _debian(tree: Tree) -> list[tuple[str, dict[str, bool]]]:
    """Return the purl of each Debian package, and for each of its files whether it has the listed content."""
    distribution = _distribution(tree)
    found = []
    for stanza in _text(tree, f"{_DPKG}/status").split("\n\n"):
        fields = Parser().parsestr(stanza)
        name, architecture = fields["Package"], fields["Architecture"]
        (stem,) = {
            f"{_DPKG}/info/{stem}"
            for stem in (name, f"{name}:{architecture}")
            if f"{_DPKG}/info/{stem}.list" in tree
        }
        sums = {
            path: sum_
            for sum_, path in (line.split("  ", 1) for line in _text(tree, f"{stem}.md5sums").splitlines())
        }
        paths = [path.removeprefix("/") for path in _text(tree, f"{stem}.list").splitlines()]
        files = {
            path: _digest(tree, path, "md5") == sums.get(path, "")
            for path in paths
            if not isinstance(tree.get(path), Folder)
        }
        found.append((_purl("deb", name, fields["Version"], architecture, distribution), files))
    return found


def _python(tree: Tree) -> list[tuple[str, dict[str, bool]]]:
    """Return the same of each Python distribution."""
    found = []
    for path in tree:
        folder, _, name = path.rpartition("/")
        if name != "METADATA" or not folder.endswith(".dist-info"):
            continue
        entry = tree[path]
        assert isinstance(entry, File)
        metadata = BytesParser().parsebytes(entry.content)
        rows = csv.reader(io.StringIO(_text(tree, f"{folder}/RECORD")))
        files = {
            f"{SITE_PACKAGES}/{file}": not sum_
            or f"sha256={_digest(tree, f'{SITE_PACKAGES}/{file}', 'sha256')}" == sum_
            for file, sum_, _size in rows
        }
        found.append((_purl("pypi", canonicalize_name(metadata["Name"]), metadata["Version"]), files))
    return found


def _distribution(tree: Tree) -> str:
    """Return the distribution of the base, such as ``debian-13``. Source: os-release(5)."""
    release = dict(line.split("=", 1) for line in _text(tree, "usr/lib/os-release").splitlines())
    return "-".join(release[name].strip('"') for name in ("ID", "VERSION_ID"))


def _purl(ecosystem: str, name: str, version: str, architecture: str = "", distribution: str = "") -> str:
    where = f"deb/{distribution.partition('-')[0]}" if ecosystem == "deb" else ecosystem
    qualifiers = f"?arch={architecture}&distro={distribution}" if ecosystem == "deb" else ""
    return f"pkg:{where}/{quote(name, safe='+')}@{quote(version, safe='~')}{qualifiers}"


def _licenses(licenses: Sequence[str]) -> list[dict[str, Any]]:
    if len(licenses) == 1 and not spdx.is_supported_id(licenses[0]) and spdx.is_expression(licenses[0]):
        return [{"expression": licenses[0]}]
    return [
        {"license": {"id" if spdx.is_supported_id(license_) else "name": license_}} for license_ in licenses
    ]


def _text(tree: Tree, path: str) -> str:
    entry = tree.get(path)
    if not isinstance(entry, File):
        raise ImageError(f"the image has no file /{path}")
    return entry.content.decode()


def _digest(tree: Tree, path: str, algorithm: str) -> str:
    """Return the digest of a file; of what is no file, or not there, the empty string or a remark."""
    match tree.get(path):
        case File(content):
            return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
        case Link():
            return ""
        case _:
            return "missing"
