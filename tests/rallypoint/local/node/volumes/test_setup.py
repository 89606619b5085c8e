"""A pod's volumes as files: contents, updates and errors."""

import os
import socket
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.node.volumes import setup
from rallypoint.local.node.volumes.downward_api import Placement
from rallypoint.local.node.volumes.projected import ProjectionSources
from rallypoint.local.node.volumes.references import Reference, Unresolved
from rallypoint.local.node.volumes.setup import Volume

CONTENTS: Mapping[Reference, Mapping[str, bytes] | None] = {
    Reference("configMap", "c"): {"a.txt": b"job-master-0", "b.bin": b"\xff"},
    Reference("secret", "s"): {"key": b"job-master-0"},
    Reference("configMap", "absent"): None,
}
PLACEMENT = Placement("local", "10.0.0.1", "10.0.0.2", {"cpu": Fraction(8), "memory": Fraction(2**33)})


def pod(*given: dict[str, Any], **meta: Any) -> dict[str, Any]:
    main = {"name": "main", "resources": {"limits": {"cpu": "1500m"}}}
    meta = {"name": "p", "namespace": "team", "uid": "u", "labels": {"b": "2", "a": 'say "1"\n'}, **meta}
    return {"metadata": meta, "spec": {"containers": [main], "volumes": list(given)}}


def given(manifest: dict[str, Any], contents: Mapping[Reference, Any] = CONTENTS) -> ProjectionSources:
    return ProjectionSources(
        manifest,
        PLACEMENT,
        contents,
        lambda audience: "t0ken",
        lambda text: text.replace("job-master-0", "1.2.3.4"),
    )


def made(folder: Path, *wanted: dict[str, Any]) -> dict[str, Volume]:
    manifest = pod(*wanted)
    return setup.make(manifest, folder, given(manifest), {})


def read(path: Path) -> dict[str, str]:
    """What a program finds that looks at names without a dot in front."""
    return {
        str(Path(folder, name).relative_to(path)): Path(folder, name).read_text()
        for folder, _, names in os.walk(path, followlinks=True)
        for name in names
        if ".." not in str(Path(folder).relative_to(path))
    }


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_of_config_maps_and_secrets(tmp_path: Path) -> None:
    item = {"key": "key", "path": "deep/id", "mode": 0o400}
    volumes = made(
        tmp_path,
        {"name": "c", "configMap": {"name": "c", "defaultMode": 0o755}},
        {"name": "s", "secret": {"secretName": "s", "items": [item]}},
    )
    config, secret = volumes["c"].path, volumes["s"].path

    assert (config / "a.txt").read_text() == "1.2.3.4"
    assert (config / "b.bin").read_bytes() == b"\xff"
    assert mode(config / "a.txt") == 0o755
    assert (secret / "deep" / "id").read_text() == "job-master-0"
    assert mode(secret / "deep" / "id") == 0o400


DOWNWARD = {
    "items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "one", "fieldRef": {"fieldPath": "metadata.labels['b']"}, "mode": 0o600},
        {
            "path": "cpu",
            "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"},
        },
    ]
}


def test_downward_api_volumes(tmp_path: Path) -> None:
    path = made(tmp_path, {"name": "d", "downwardAPI": DOWNWARD})["d"].path

    assert read(path) == {"labels": 'a="say \\"1\\"\\n"\nb="2"', "one": "2", "cpu": "1500"}
    assert mode(path / "one") == 0o600


def test_a_projected_volume_has_the_files_of_all_its_sources(tmp_path: Path) -> None:
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "c", "items": [{"key": "a.txt", "path": "x/a"}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"configMap": {"name": "absent", "optional": True}},
    ]
    path = made(tmp_path, {"name": "p", "projected": {"sources": sources, "defaultMode": 0o640}})["p"].path

    assert read(path) == {"token": "t0ken", "x/a": "1.2.3.4", "key": "job-master-0", "namespace": "team"}
    assert mode(path / "token") == mode(path / "x" / "a") == 0o640


def test_volumes_are_updated_when_their_objects_change(tmp_path: Path) -> None:
    """All files at once: the folder that they are in is another one, and what is gone is gone."""
    manifest = pod({"name": "c", "configMap": {"name": "c"}})
    path = setup.make(manifest, tmp_path, given(manifest), {})["c"].path
    before = (path / "..data").resolve()
    now = {Reference("configMap", "c"): {"a.txt": b"new", "sub": b"more"}}

    assert setup.refresh(manifest, tmp_path, given(manifest, now))
    assert read(path) == {"a.txt": "new", "sub": "more"}
    assert not before.exists()
    assert not setup.refresh(manifest, tmp_path, given(manifest, now))


def test_a_reader_never_finds_half_of_a_change(tmp_path: Path) -> None:
    manifest = pod({"name": "c", "configMap": {"name": "c"}})
    path = setup.make(manifest, tmp_path, given(manifest), {})["c"].path
    before = (path / "..data").resolve()
    setup.refresh(manifest, tmp_path, given(manifest, {Reference("configMap", "c"): {"a.txt": b"new"}}))

    assert (path / "..data").is_symlink()
    assert (path / "a.txt").read_text() == "new"
    assert not before.exists()


def test_label_files_are_updated(tmp_path: Path) -> None:
    manifest = pod({"name": "d", "downwardAPI": DOWNWARD})
    path = setup.make(manifest, tmp_path, given(manifest), {})["d"].path
    now = pod({"name": "d", "downwardAPI": DOWNWARD}, labels={"b": "3"})

    assert setup.refresh(now, tmp_path, given(now))
    assert read(path) == {"labels": 'b="3"', "one": "3", "cpu": "1500"}


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        pytest.param({"configMap": {"name": "absent"}}, 'configmap "absent" not found', id="no such object"),
        pytest.param(
            {"configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}},
            'MountVolume.SetUp failed for volume "v" : references non-existent config key: z',
            id="no key",
        ),
        pytest.param(
            {"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}},
            "references non-existent secret key: z",
            id="no key of a secret",
        ),
        pytest.param(
            {"configMap": {"name": "c", "items": [{"key": "a.txt", "path": "../z"}]}},
            "leaves its volume",
            id="upwards",
        ),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.x"}}]}},
            "unsupported fieldPath: spec.x",
            id="no field",
        ),
    ],
)
def test_a_missing_source_is_named(tmp_path: Path, volume: dict[str, Any], words: str) -> None:
    with pytest.raises(Unresolved, match=words):
        made(tmp_path, {"name": "v", **volume})


def test_an_optional_object_is_an_empty_folder(tmp_path: Path) -> None:
    path = made(tmp_path, {"name": "v", "configMap": {"name": "absent", "optional": True}})["v"].path

    assert read(path) == {}


@pytest.mark.parametrize(
    ("kind", "there"),
    [
        ("", "folder"),
        ("", "file"),
        ("Directory", "folder"),
        ("DirectoryOrCreate", "folder"),
        ("File", "file"),
        ("FileOrCreate", "file"),
        ("Socket", "socket"),
        ("CharDevice", "/dev/null"),
        ("", "new/deep"),
        ("DirectoryOrCreate", "new/deep"),
        ("FileOrCreate", "new"),
    ],
)
def test_a_host_path(machine: Path, kind: str, there: str) -> None:
    path = machine / there
    volume = made(machine, {"name": "h", "hostPath": {"path": str(path), "type": kind}})["h"]

    assert volume.path == path
    assert path.is_dir() == (there in ("folder", "new/deep"))
    assert path.exists()


@pytest.mark.parametrize(
    ("kind", "there", "words"),
    [
        ("Directory", "file", "is not a directory"),
        ("Directory", "none", "is not a directory"),
        ("DirectoryOrCreate", "file", "is not a directory"),
        ("File", "folder", "is not a file"),
        ("File", "none", "is not a file"),
        ("FileOrCreate", "none/deep", "No such file"),
        ("Socket", "file", "is not a socket file"),
        ("CharDevice", "file", "is not a character device"),
        ("BlockDevice", "/dev/null", "is not a block device"),
    ],
)
def test_a_host_path_of_another_type(machine: Path, kind: str, there: str, words: str) -> None:
    with pytest.raises(Unresolved, match=f'volume "h" : .*{words}'):
        made(machine, {"name": "h", "hostPath": {"path": str(machine / there), "type": kind}})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)  # The path of a socket must be short.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    return tmp_path


@pytest.mark.parametrize(
    ("volume", "container", "words"),
    [
        ({"nfs": {}}, {}, 'volume "v" is a nfs, which'),
        ({"csi": {}}, {}, 'volume "v" is a csi, which'),
        ({"emptyDir": {"medium": "HugePages"}}, {}, "is a emptyDir of medium HugePages, which"),
        (
            {"projected": {"sources": [{"clusterTrustBundle": {}}]}},
            {},
            "is a projected clusterTrustBundle, which",
        ),
        ({"emptyDir": {}}, {"volumeDevices": [{"name": "v"}]}, 'volume "v" is requested as a block device'),
        (
            {"emptyDir": {}},
            {"volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]},
            "mountPropagation Bidirectional",
        ),
        (
            {"emptyDir": {}},
            {"volumeMounts": [{"name": "w", "mountPath": "/w"}]},
            "which the pod does not have",
        ),
        ({"emptyDir": {"medium": "Memory"}}, {}, ""),
        ({"projected": {"sources": [{"serviceAccountToken": {}}]}}, {}, ""),
        ({"persistentVolumeClaim": {"claimName": "c"}}, {}, ""),
        ({"ephemeral": {}}, {}, ""),
    ],
)
def test_an_unsupported_volume_is_rejected_by_name(
    volume: dict[str, Any], container: dict[str, Any], words: str
) -> None:
    manifest = {"spec": {"containers": [{"name": "main", **container}], "volumes": [{"name": "v", **volume}]}}
    reason = setup.unsupported(manifest)

    assert words in reason
    assert bool(words) == bool(reason)


def test_a_folder_without_permissions_is_removed(tmp_path: Path) -> None:
    from rallypoint.local.node.volumes.setup import remove_tree

    deep = tmp_path / "pod" / "closed" / "deep"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    deep.chmod(0)
    deep.parent.chmod(0)
    remove_tree(tmp_path / "pod")

    assert not (tmp_path / "pod").exists()


def test_a_relative_host_path_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (volume,) = made(tmp_path / "pod", {"name": "v", "hostPath": {"path": "data"}}).values()

    assert volume.path == tmp_path / "data"
    assert volume.path.is_dir()
