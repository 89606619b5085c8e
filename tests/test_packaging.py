"""The two distributions: what each contains and requires, and the locks of their dependencies."""

import email
import os
import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPERATOR: dict[str, Any] = tomllib.loads((ROOT / "deploy" / "operator" / "pyproject.toml").read_text())
PROJECTS = {"rallypoint_operator": ROOT / "deploy" / "operator", "rallypoint": ROOT}
LOCKS = {"build": ["build"], "operator": [], "tracing": [], "dev": ["dev"], "demo": ["demo"]}
NOT_IN_THE_IMAGE = {
    "common-expression-language",
    "hatchling",
    "kubernetes-asyncio",
    "nvidia-ml-py",
    "psutil",
    "pyroute2",
    "rallypoint",
    "rich",
}


def normal(requirement: str) -> str:
    """The distribution's name in a requirement, in the spelling that a lock uses."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def group(name: str) -> set[str]:
    names: set[str] = set()
    for entry in PROJECT["dependency-groups"][name]:
        names |= {normal(entry)} if isinstance(entry, str) else group(entry["include-group"])
    return names


def pins(lock: str) -> dict[str, str]:
    """Name and everything after it of each package in a lock."""
    text = re.sub(r"^\s*#.*$", "", (ROOT / "requirements" / f"{lock}.txt").read_text(), flags=re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.replace("\\\n", " ").strip())
    return {normal(entry): entry for entry in entries}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_satisfies_the_requirements_of_the_project(lock: str) -> None:
    """If this fails, run ``make lock``."""
    wanted = set().union(*(group(name) for name in LOCKS[lock]))
    if lock != "build":
        wanted |= {normal(requirement) for requirement in OPERATOR["project"]["dependencies"]}
    if lock in {"tracing", "dev"}:
        wanted |= {
            normal(requirement) for requirement in OPERATOR["project"]["optional-dependencies"]["tracing"]
        }
    if lock not in {"build", "operator", "tracing"}:
        wanted |= {normal(requirement) for requirement in PROJECT["project"]["dependencies"]}
        wanted |= {
            normal(requirement) for requirement in OPERATOR["project"]["optional-dependencies"]["kubeconfig"]
        }

    assert wanted - {"rallypoint-operator"} - pins(lock).keys() == set()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_address(lock: str) -> None:
    for name, entry in pins(lock).items():
        assert re.match(r"\S+==\S+", entry), name
        assert "--hash=sha256:" in entry, name
        assert "://" not in entry, name


def test_the_image_contains_the_tested_versions() -> None:
    def version(entry: str) -> str:
        return entry.split()[0]

    tested = pins("dev")
    assert {version(entry) for entry in pins("operator").values()} <= {
        version(entry) for entry in tested.values()
    }


def test_an_image_with_traces_has_the_same_versions_and_opentelemetry_beside_them() -> None:
    more = {name: entry.split()[0] for name, entry in pins("tracing").items()}
    plain = {name: entry.split()[0] for name, entry in pins("operator").items()}

    assert plain.items() <= more.items()
    assert "opentelemetry-sdk" in more.keys() - plain.keys()
    assert NOT_IN_THE_IMAGE & more.keys() == set()


def test_the_image_has_only_what_the_operator_needs() -> None:
    assert NOT_IN_THE_IMAGE & pins("operator").keys() == set()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels and both source distributions."""
    folder = tmp_path_factory.mktemp("built")
    for project in PROJECTS.values():
        run_hatchling(project, folder)
    return folder


def run_hatchling(project: Path, folder: Path, *targets: str, umask: int = 0o022, **environ: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    command += [option for target in targets or ("sdist", "wheel") for option in ("-t", target)]
    environment = os.environ | environ
    subprocess.run(command, cwd=project, env=environment, umask=umask, check=True, capture_output=True)


def wheel_contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def wheel_of(folder: Path, name: str) -> Path:
    (wheel,) = folder.glob(f"{name}-*.whl")
    return wheel


@pytest.mark.parametrize(
    ("name", "folders"),
    [("rallypoint_operator", ("api", "controller")), ("rallypoint", ("rallypoint", "bench"))],
)
def test_a_wheel_holds_every_file_of_its_packages_and_nothing_else(
    name: str, folders: tuple[str, ...], built: Path
) -> None:
    contents = {entry for entry in wheel_contents(wheel_of(built, name)) if ".dist-info/" not in entry}
    tracked = subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, text=True).splitlines()

    assert contents == {file for file in tracked if not file.startswith("bench/results/")}


@pytest.mark.parametrize("name", PROJECTS)
def test_a_source_distribution_builds_the_same_wheel(name: str, built: Path, tmp_path: Path) -> None:
    (source,) = built.glob(f"{name}-*.tar.gz")
    # Python 3.11.2, Debian's, has no filters to extract safely, and newer ones warn without one.
    subprocess.run(["tar", "-xzf", str(source), "-C", str(tmp_path)], check=True)
    run_hatchling(tmp_path / source.name.removesuffix(".tar.gz"), tmp_path, "wheel")

    assert wheel_contents(wheel_of(tmp_path, name)) == wheel_contents(wheel_of(built, name))


def test_another_path_user_and_time_zone_build_the_same_bytes(built: Path, tmp_path: Path) -> None:
    copy, again, home = tmp_path / "another folder" / "copy", tmp_path / "again", tmp_path / "home"
    home.mkdir()
    folders = ("api", "controller", "rallypoint", "bench", "deploy/operator")
    files = (*folders, "pyproject.toml", "README.md", "LICENSE", ".gitignore")
    for file in subprocess.check_output(["git", "ls-files", *files], cwd=ROOT, text=True).splitlines():
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        (copy / file).write_bytes((ROOT / file).read_bytes())
        (copy / file).chmod(0o700 if os.access(ROOT / file, os.X_OK) else 0o600)
    for project in PROJECTS.values():
        place = copy / project.relative_to(ROOT)
        # The copy is no repository.
        (wheel,) = built.glob("rallypoint-*.whl")
        commit = next(text for path, text in wheel_contents(wheel).items() if path.endswith("/COMMIT"))
        (place / "COMMIT").write_bytes(commit)
        run_hatchling(place, again, umask=0o077, HOME=str(home), TZ="Pacific/Kiritimati", LC_ALL="POSIX")

    first, second = (
        {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in (built, again)
    )
    assert first == second


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_names_its_commit_license_and_pages(name: str, built: Path) -> None:
    contents = wheel_contents(wheel_of(built, name))
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    (metadata,) = (
        email.message_from_bytes(contents[path]) for path in contents if path.endswith("/METADATA")
    )
    links = re.findall(r"\]\(([^)#]*)", str(metadata.get_payload()))

    assert [
        text.decode().strip().removesuffix("-dirty")
        for path, text in contents.items()
        if path.endswith("/extra_metadata/COMMIT")
    ] == [commit]
    assert [text for path, text in contents.items() if path.endswith("/licenses/LICENSE")] == [
        (ROOT / "LICENSE").read_bytes()
    ]
    assert metadata["Version"] == PROJECT["project"]["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {url.split(",")[0] for url in metadata.get_all("Project-URL", [])} == {
        "Repository",
        "Documentation",
        "Changelog",
        "Issues",
        "Security",
    }
    # Where the description is shown, a relative link would lead nowhere.
    repository = PROJECT["project"]["urls"]["Repository"]
    paths = [re.sub(rf"^{repository}/(blob|raw)/v[^/]+/", "", link) for link in links if link]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_distributions_pass_the_check_of_their_index(built: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.count("PASSED")) == (0, 4), done.stdout


def test_an_installed_wheel_prints_its_commit(built: Path, tmp_path: Path) -> None:
    """Without the checkout, the commit comes from the wheel's metadata."""
    for wheel in built.glob("*.whl"):
        with ZipFile(wheel) as archive:
            archive.extractall(tmp_path)
    environ = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    for name, program in (
        ("rallypoint", "from rallypoint.cli import main; main(['--version'])"),
        ("rallypoint-operator", "from controller.command import main; main(['--version'])"),
    ):
        command = [sys.executable, "-c", program]
        printed = subprocess.check_output(command, cwd=tmp_path, env=environ, text=True)

        assert printed.replace("-dirty", "") == f"{name} {PROJECT['project']['version']} (commit {commit})\n"


def test_both_distributions_have_the_same_license_text() -> None:
    assert (ROOT / "deploy" / "operator" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_no_other_distribution_has_our_import_names() -> None:
    """Another distribution with a package ``api`` or ``controller`` would shadow ours, or ours it."""
    shipped = packages_distributions()

    for name in ("api", "controller", "rallypoint", "bench"):
        assert set(shipped.get(name, [])) <= {"rallypoint", "rallypoint-operator"}
