"""Where the schedulers of the tests come from; ``make schedulers`` compiles and runs them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rallypoint.testing.controlplane import gobuild
from rallypoint.testing.controlplane.programs import Program
from tests.support.schedulers import programs

MODULE = programs.Module(
    "example.org/some/queue",
    "1.2.3",
    programs={"manager": "cmd/manager"},
    files={"crds": "config/crd", "webhooks.yaml": "config/webhooks.yaml"},
)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The compiled packages; the module's sources are a read-only folder."""
    compiled: list[str] = []
    source = tmp_path / "source"
    (source / "config" / "crd").mkdir(parents=True)
    (source / "config" / "crd" / "queues.yaml").write_text("kind: CustomResourceDefinition")
    (source / "config" / "webhooks.yaml").write_text("kind: MutatingWebhookConfiguration")
    for path in (source / "config" / "crd" / "queues.yaml", source / "config" / "crd"):
        path.chmod(0o555)

    def build(wanted: Sequence[Program], into: Path, *, say: Callable[[str], None]) -> None:
        for program in wanted:
            compiled.append(f"{program.package}@{program.version}")
            (into / program.name).touch()

    monkeypatch.setattr(gobuild, "build", build)
    monkeypatch.setattr(gobuild, "module_directory", lambda *_: source)
    return compiled


def test_a_module_is_compiled_once_and_its_files_are_copied(built: list[str], tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}

    folder = programs.ensure(MODULE, environ=environ)
    again = programs.ensure(MODULE, environ=environ)

    assert folder == again == tmp_path / "rallypoint" / "schedulers" / "queue-v1.2.3"
    assert built == ["example.org/some/queue/cmd/manager@v1.2.3"]
    assert (folder / "crds" / "queues.yaml").read_text() == "kind: CustomResourceDefinition"
    assert (folder / "webhooks.yaml").read_text() == "kind: MutatingWebhookConfiguration"


def test_files_of_a_module_can_be_removed_again(built: list[str], tmp_path: Path) -> None:
    """In a module cache everything is read-only."""
    folder = programs.ensure(MODULE, environ={"XDG_CACHE_HOME": str(tmp_path)})

    assert (folder / "crds").stat().st_mode & 0o700 == 0o700
    assert (folder / "crds" / "queues.yaml").stat().st_mode & 0o200
