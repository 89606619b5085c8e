"""The bill of materials: valid CycloneDX, and every difference between it and the image is reported."""

from typing import Any

import pytest

from tools.image import ImageError, debian, sbom, wheels
from tools.image.files import Component, File, Tree
from tools.image.wheels import SITE_PACKAGES

GENERATED = {"etc/passwd"}
IMAGE = {
    "name": "rallypoint",
    "version": "1.0",
    "digest": f"sha256:{'0' * 64}",
    "created": "2026-11-27T00:00:00Z",
    "license": "Apache-2.0",
}
METADATA = b"Metadata-Version: 2.4\nName: Small.Package\nVersion: 1.0\n"


def components() -> list[Component]:
    control = "Package: base-files\nVersion: 1:13\nArchitecture: amd64\n"
    base: Tree = {
        "usr/lib/os-release": File(b'ID=debian\nVERSION_ID="13"\n'),
        "usr/bin/program": File(b"program"),
    }
    package: Tree = {
        f"{SITE_PACKAGES}/small.py": File(b"pass\n"),
        f"{SITE_PACKAGES}/small_package-1.0.dist-info/METADATA": File(METADATA),
    }
    found = [
        Component("deb", "base-files", "1:13", ("public-domain", "Zlib"), "1" * 64, base, control),
        Component("pypi", "small-package", "1.0", ("MIT AND Apache-2.0",), "2" * 64, package),
    ]
    wheels.record(found[1])
    return found


@pytest.fixture
def layers() -> list[Tree]:
    base, package = components()
    return [{**base.files, **debian.database([base], "amd64"), "etc/passwd": File(b"root")}, package.files]


@pytest.fixture
def bom() -> dict[str, Any]:
    return sbom.build(components(), IMAGE, "amd64")


def problems(bom: dict[str, Any], layers: list[Tree]) -> list[str]:
    with pytest.raises(ImageError) as refused:
        sbom.check(bom, layers, GENERATED)
    return str(refused.value).splitlines()[1:]


def test_a_bill_of_materials_equals_its_image(bom: dict[str, Any], layers: list[Tree]) -> None:
    sbom.check(bom, layers, GENERATED)

    assert [component["purl"] for component in bom["components"]] == [
        "pkg:deb/debian/base-files@1%3A13?arch=amd64&distro=debian-13",
        "pkg:pypi/small-package@1.0",
    ]
    assert bom["components"][0]["licenses"] == [
        {"license": {"name": "public-domain"}},
        {"license": {"id": "Zlib"}},
    ]
    assert bom["components"][1]["licenses"] == [{"expression": "MIT AND Apache-2.0"}]
    assert bom["components"][1]["hashes"] == [{"alg": "SHA-256", "content": "2" * 64}]


def test_the_same_image_has_the_same_bill_of_materials(bom: dict[str, Any]) -> None:
    assert sbom.build(components()[::-1], IMAGE, "amd64") == bom


def test_a_bill_of_materials_against_its_schema_is_refused(bom: dict[str, Any], layers: list[Tree]) -> None:
    bom["components"][0]["type"] = "thing"

    with pytest.raises(ImageError, match=r"does not follow CycloneDX 1\.6"):
        sbom.check(bom, layers, GENERATED)


def test_a_package_that_is_not_listed_is_reported(bom: dict[str, Any], layers: list[Tree]) -> None:
    del bom["components"][1], bom["dependencies"]

    assert problems(bom, layers) == ["pkg:pypi/small-package@1.0 is in the image only"]


def test_a_package_of_another_version_is_reported(bom: dict[str, Any], layers: list[Tree]) -> None:
    bom["components"][1]["purl"] = "pkg:pypi/small-package@1.1"

    assert problems(bom, layers) == [
        "pkg:pypi/small-package@1.0 is in the image only",
        "pkg:pypi/small-package@1.1 is in the bill of materials only",
    ]


def test_a_file_of_no_component_is_reported(bom: dict[str, Any], layers: list[Tree]) -> None:
    layers[1]["usr/bin/more"] = File(b"more")

    assert problems(bom, layers) == ["/usr/bin/more belongs to no component"]


@pytest.mark.parametrize("path", ["usr/bin/program", f"{SITE_PACKAGES}/small.py"])
def test_a_changed_or_missing_file_is_reported(path: str, bom: dict[str, Any], layers: list[Tree]) -> None:
    layer = next(layer for layer in layers if path in layer)
    layer[path] = File(b"changed")
    (changed,) = problems(bom, layers)
    del layer[path]
    (missing,) = problems(bom, layers)

    assert changed == missing
    assert changed.startswith(f"/{path} is not as pkg:")


def test_a_file_in_two_layers_is_reported(bom: dict[str, Any], layers: list[Tree]) -> None:
    layers[1]["usr/bin/program"] = File(b"program")

    with pytest.raises(ImageError, match="files in more than one layer: usr/bin/program"):
        sbom.check(bom, layers, GENERATED)
