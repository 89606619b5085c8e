"""The options of PyTorchJobs.

Source: training-operator 1.9, pkg/config/config.go and cmd/training-operator.v1/main.go.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from controller.kind.options import InvalidOption, KindOptions, option


@dataclass(frozen=True, slots=True)
class PyTorchOptions(KindOptions):
    prefix: ClassVar[str] = "pytorch"

    init_container: bool = option(
        True, "whether workers get an init container that waits until the master's name resolves", on_off=True
    )
    init_container_image: str = option("alpine:3.10", "image of that init container")
    init_container_template_file: str = option(
        "/etc/config/initContainer.yaml",
        "file with a YAML list of init containers to use instead; only the default may be missing",
    )
    init_container_max_tries: int = option(
        100, "maximum number of lookups of the master's name, one every 2 s"
    )
    init_container_template: str = ""
    """YAML list of containers with ``{{.MasterAddr}}``, ``{{.InitContainerImage}}``, ``{{.MaxTries}}``; empty means the built-in one."""

    def __post_init__(self) -> None:
        if self.init_container_max_tries < 1:
            raise ValueError(
                f"--pytorch-init-container-max-tries must be at least 1, not {self.init_container_max_tries}"
            )

    @override
    def load(self) -> "PyTorchOptions":
        """Read the template file at the start, so that an invalid file stops the controller and not each job."""
        from controller.kinds.pytorch.init_container import from_template

        path = self.init_container_template_file
        if path == PyTorchOptions().init_container_template_file and not Path(path).exists():
            return self
        try:
            loaded = replace(self, init_container_template=Path(path).read_text(encoding="utf-8"))
            from_template(loaded, address="master")
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else error
            raise InvalidOption(f"--pytorch-init-container-template-file {path}: {text}") from error
        return loaded
