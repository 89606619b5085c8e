"""A double of the binding of NVML: a machine with GPUs, whole or divided."""

from collections.abc import Mapping, Sequence


class NVMLError(Exception):
    pass


class Nvml:
    """``parts`` are the UUIDs of a divided GPU's parts by its own; None stands for a place that is empty."""

    NVMLError = NVMLError

    def __init__(
        self, *gpus: str, parts: Mapping[str, Sequence[str | None]] | None = None, driver: bool = True
    ) -> None:
        self._gpus = gpus
        self._parts = parts or {}
        self._driver = driver
        self.open = 0
        """How many sessions have not been closed."""

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's names
        if not self._driver:
            raise NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return self._gpus[index]

    def nvmlDeviceGetUUID(self, device: str) -> str:  # noqa: N802
        return device

    def nvmlDeviceGetMigMode(self, device: str) -> list[int]:  # noqa: N802
        if device not in self._parts:
            raise NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: str) -> int:  # noqa: N802
        return len(self._parts[device])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: str, index: int) -> str:  # noqa: N802
        part = self._parts[device][index]
        if part is None:
            raise NVMLError("Not Found")
        return part
