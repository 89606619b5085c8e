"""Local replacements of images: a folder as the root file system, and the image's config. Read once at the start."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

CONTAINER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BadImage(ValueError):
    """The folder or the config of an image cannot be used; the text names the file and the field."""


class Config(msgspec.Struct, frozen=True, rename="pascal"):
    """The part of an image's config that local mode follows. ``User`` has no effect: a process stays with its user.

    Source: OCI image-spec 1.1, config.md.
    """

    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    env: list[str] | None = None
    working_dir: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """A root file system, or None for that of this machine, and a config, or None if it is unknown."""

    folder: Path | None = None
    config: Config | None = None

    @classmethod
    def read(cls, path: Path) -> "Image":
        """Read the image's config from a file, or its root file system from a folder.

        The config of a folder may be in ``FOLDER.json`` next to it. Such a file contains the config alone, as ``docker
        image inspect --format '{{json .Config}}'`` prints it, or a whole image configuration with a member ``config``,
        as ``skopeo inspect --config`` prints it.

        Raises:
            BadImage: the path does not exist, or the config cannot be read.
        """
        if path.is_file():
            return cls(None, _config(path))
        if not path.is_dir():
            raise BadImage(f"{path} is neither a folder nor the file of an image's config")
        config = path.with_name(f"{path.name}.json")
        return cls(path, _config(config) if config.exists() else None)

    @property
    def working_dir(self) -> str:
        """The working directory of the config; empty if it names none."""
        return self.config.working_dir if self.config is not None else ""

    def environment(self, user: int, user_env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process with UID ``user``.

        It includes ``user_env``, the user's own variables, only if the image has no root file system.
        """
        env = self.config.env if self.config is not None else None
        own = dict(entry.split("=", 1) for entry in env or ())
        if self.folder is None:
            return {**user_env, **own}
        return {"PATH": CONTAINER_PATH, "HOME": _home(self.folder, user), **own}


class Images:
    def __init__(self, images: Mapping[str, Image]) -> None:
        self._given = images
        self._images = {named(name): image for name, image in images.items()}

    def get(self, name: str) -> Image | None:
        """Return the replacement of an image; None if there is none."""
        return self._images.get(named(name)) if self._images else None

    def roots(self) -> list[tuple[str, Path]]:
        """Return the names and folders of the images that have a root file system."""
        return [(name, image.folder) for name, image in self._given.items() if image.folder is not None]


NO_IMAGES = Images({})


def command_line(container: Mapping[str, Any], image: Image | None) -> list[str]:
    """Return the command line of a container; empty if neither the container nor the config of its image has one.

    Source: Kubernetes, "Define a Command and Arguments for a Container": ``command`` replaces the entrypoint and drops the
    image's arguments, ``args`` replaces these arguments.
    """
    command, args = list(container.get("command") or ()), list(container.get("args") or ())
    if command:
        return [*command, *args]
    if image is None or image.config is None:
        return []
    return [*(image.config.entrypoint or ()), *(args or image.config.cmd or ())]


def named(image: str) -> str:
    """Return an image's name with its tag."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def _config(path: Path) -> Config:
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        config = msgspec.convert(document.get("config", document), Config)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadImage(f"{path}: {error}") from error
    if wrong := [entry for entry in config.env or () if entry.find("=") < 1]:
        raise BadImage(f"{path}: Env: {wrong[0]!r} is not NAME=VALUE")
    return config


def _home(folder: Path, user: int) -> str:
    users = folder / "etc" / "passwd"
    lines = users.read_text(errors="replace").splitlines() if users.is_file() else []
    homes = {fields[2]: fields[5] for fields in (line.split(":") for line in lines) if len(fields) > 5}
    return homes.get(str(user)) or "/"
