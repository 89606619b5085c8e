"""Debian packages of the image's base: the lock, the download and the files of each.

``requirements/debian.json`` names each package with version, path in Debian's archive and SHA-256. apt, which checks Debian's signature,
writes it; what is downloaded is held against it at each use.
"""

import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Mapping
from email.parser import Parser
from hashlib import md5, sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError

from tools.image import ImageError
from tools.image.files import Component, File, Folder, Link, Tree
from tools.python import image_version

LOCK = Path("requirements/debian.json")
SUITE = "trixie"
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Each architecture of the image, and the kernel's word for it."""
RENEW = "run `make image-lock`"
_PYTHON = f"python{image_version()}"
PACKAGES = (
    "base-files", "ca-certificates", "gcc-14-base", "libc6", "libexpat1", "libffi8", "libgcc-s1", f"lib{_PYTHON}-minimal",
    f"lib{_PYTHON}-stdlib", "libssl3t64", "libstdc++6", "libzstd1", f"{_PYTHON}-minimal", "zlib1g",
)  # fmt: skip
"""What the interpreter and the wheels link. gcc-14-base has the license of libgcc-s1."""
_LICENSES = {
    _PYTHON: "PSF-2.0",
    "gcc-14": "GPL-3.0-or-later WITH GCC-exception-3.1",
}
"""Licenses of source packages whose copyright file has no machine-readable form."""
_UNUSED = re.compile(
    rf"""
    usr/share/(?!common-licenses/|ca-certificates/|doc/[^/]+(/copyright)?$)
    | (boot|home|media|mnt|srv|usr/(games|include|local|src)|var/(backups|cache|lib/misc|local|lock|log|mail|opt|spool))(/|$)
    | etc/(ca-certificates|default|issue|profile\.d|python|skel|update-motd\.d)
    | usr/sbin/
    | usr/lib/binfmt\.d
    | usr/lib/[^/]+-linux-gnu/(audit|engines-3|gconv|ossl-modules)
    | usr/lib/[^/]+-linux-gnu/lib(BrokenLocale|c_malloc_debug|expatw|memusage|mvec|nsl|nss_compat|nss_hesiod|pcprofile|thread_db)\.
    | usr/lib/{_PYTHON}/(EXTERNALLY|__hello__|__phello__|_pyrepl|curses|dbm|pydoc_data|sqlite3|test|turtle|unittest|venv)
    | usr/lib/{_PYTHON}/(_aix|_android|_apple|_ios|_osx)_support\.py
    | usr/lib/{_PYTHON}/(antigravity|sitecustomize|this)\.py
    | usr/lib/{_PYTHON}/lib-dynload/(_bz2|_codecs_|_ctypes_test|_curses|_dbm|_lzma|_sqlite3|_test|_uuid|_xxtest|readline|xx)
    """,
    re.VERBOSE,
)
"""Documentation, parts of the standard library that need a terminal, a database or a test, and the libraries of those."""
_CERTIFICATE_FILES = "usr/share/ca-certificates/"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
"""The file with all of Debian's certificate authorities."""
_TIMEOUT_SECONDS = 60.0


class Package(NamedTuple):
    """A locked package; ``path`` is in the archive ``archive``."""

    name: str
    version: str
    archive: str
    path: str
    sha256: str


def read_lock(path: Path, architecture: str) -> list[Package]:
    """Return the packages of an architecture.

    Raises:
        ImageError: the lock lacks the architecture or a package, or has another suite.
    """
    lock = json.loads(path.read_text())
    packages = [Package(name, **entry) for name, entry in lock["packages"].get(architecture, {}).items()]
    if lock["suite"] != SUITE or {package.name for package in packages} != set(PACKAGES):
        raise ImageError(f"{path} does not lock the packages of {SUITE} for {architecture}: {RENEW}")
    return packages


def mirrors(template: str = "") -> dict[str, str]:
    """Return the address of Debian's archives ``debian`` and ``debian-security``, with a slash at the end.

    Args:
        template: an address with ``{archive}``; without it, the mirrors that this machine's apt uses.

    Raises:
        ImageError: apt is missing here or uses no mirror of Debian.
    """
    if template:
        if "{archive}" not in template:
            raise ImageError(
                f"--mirror {template}: {{archive}} is missing, for debian and debian-security to take its place"
            )
        return {
            archive: template.format(archive=archive).rstrip("/") + "/"
            for archive in ("debian", "debian-security")
        }
    try:
        command = ("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Origin: Debian")
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        output = ""
    found = {
        label.lower(): uri for label, _, uri in (line.partition(" ") for line in output.splitlines()) if uri
    }
    if not {"debian", "debian-security"} <= found.keys():
        raise ImageError(
            "apt knows no mirror of Debian and its security updates here (run apt-get update): "
            "name one with --mirror 'https://HOST/{archive}', or in RALLYPOINT_DEBIAN_MIRROR"
        )
    return found


def download(package: Package, cache: Path, mirror: Mapping[str, str]) -> bytes:
    """Return a package's content, from the cache or the mirror.

    Raises:
        ImageError: the content does not have the locked hash, or the mirror has no such file.
    """
    path = cache / "debian" / package.path.rpartition("/")[2]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        content = _fetch(package, mirror[package.archive] + package.path)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        Path(file.name).replace(path)
    content = path.read_bytes()
    if sha256(content).hexdigest() != package.sha256:
        raise ImageError(f"{path} does not have the SHA-256 that {LOCK} locks: remove it, or {RENEW}")
    return content


def _fetch(package: Package, url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            content: bytes = response.read()
    except HTTPError as error:
        raise ImageError(
            f"{package.name} {package.version} is not at {url} ({error.code}): Debian has replaced it; {RENEW}, or name a "
            "snapshot of Debian's archive with --mirror"
        ) from error
    except (URLError, OSError) as error:
        raise ImageError(f"cannot download {url}: {error}") from error
    if sha256(content).hexdigest() != package.sha256:
        raise ImageError(f"{url} does not have the SHA-256 that {LOCK} locks: {RENEW}")
    return content


def unpack(content: bytes, digest: str) -> Component:
    """Return the component of a package, with the files that the image keeps.

    Raises:
        ImageError: the package has a format that Debian does not use, or no license.
    """
    members = _members(content)
    control, files = _read_tar(members, "control"), _read_tar(members, "data")
    text = _content(control, "control").decode()
    fields = Parser().parsestr(text)
    doc = files.get(f"usr/share/doc/{fields['Package']}")
    has_copyright = not isinstance(doc, Link)  # a link to the folder of another package of the same source
    source = (fields["Source"] or fields["Package"]).split()[0]
    copyright_ = (
        _content(files, f"usr/share/doc/{fields['Package']}/copyright").decode() if has_copyright else ""
    )
    kept = {path: entry for path, entry in files.items() if not _UNUSED.match(path)}
    if certificates := [kept.pop(path) for path in sorted(kept) if path.startswith(_CERTIFICATE_FILES)]:
        # As its maintainer script does, which does not run here.
        contents = [entry.content for entry in certificates if isinstance(entry, File)]
        kept[CERTIFICATES] = File(b"".join(contents))
    return Component(
        "deb", fields["Package"], fields["Version"], licenses(source, copyright_), digest, kept, text
    )


def licenses(source: str, copyright_: str) -> tuple[str, ...]:
    """Return the licenses in a copyright file, in Debian's words; those of a few source packages in SPDX's.

    Source: Debian's machine-readable copyright format 1.0.
    """
    if source in _LICENSES:
        return (_LICENSES[source],)
    if not copyright_.startswith("Format:"):
        raise ImageError(f"the license of {source} is in prose: name it in tools/image/debian.py")
    found = re.findall(r"^License:[ \t]*(\S.*)$", copyright_, re.MULTILINE)
    return tuple(sorted({license_.strip() for license_ in found}))


def database(components: list[Component], architecture: str) -> Tree:
    """Return dpkg's database for these packages, which scanners read, and ``check`` in :mod:`tools.image.sbom`."""
    entries, tree = [], Tree()
    for component in sorted(components, key=lambda component: component.name):
        package, _, rest = component.control.partition("\n")
        entries.append(f"{package}\nStatus: install ok installed\n{rest.rstrip()}\n")
        is_coinstallable = (
            "\nMulti-Arch: same" in component.control and "\nArchitecture: all" not in component.control
        )
        stem = f"var/lib/dpkg/info/{component.name}{f':{architecture}' if is_coinstallable else ''}"
        listed = "".join(f"/{path}\n" for path in sorted(component.files))
        sums = "".join(
            f"{md5(entry.content, usedforsecurity=False).hexdigest()}  {path}\n"
            for path, entry in sorted(component.files.items())
            if isinstance(entry, File)
        )
        tree |= {f"{stem}.list": File(listed.encode()), f"{stem}.md5sums": File(sums.encode())}
    return {**tree, "var/lib/dpkg/status": File("\n".join(entries).encode())}


def renew(path: Path, mirror: Mapping[str, str]) -> dict[str, Any]:
    """Write the lock with Debian's current versions, security updates included, and return it.

    Raises:
        ImageError: apt is missing, or cannot get or verify Debian's lists.
    """
    lock: dict[str, Any] = {"suite": SUITE, "packages": {}}
    for architecture in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as scratch:
            stanzas = _show(Path(scratch), architecture, mirror)
        lock["packages"][architecture] = {
            fields["Package"]: {
                "version": fields["Version"],
                "archive": "debian-security" if fields["Filename"].startswith("pool/updates/") else "debian",
                "path": fields["Filename"],
                "sha256": fields["SHA256"],
            }
            for fields in sorted(map(Parser().parsestr, stanzas), key=lambda fields: str(fields["Package"]))
        }
    path.write_text(json.dumps(lock, indent=2) + "\n")
    return lock


def _show(folder: Path, architecture: str, mirror: Mapping[str, str]) -> list[str]:
    """Return apt's entries of the packages, from lists of its own."""
    keyring = next(Path("/usr/share/keyrings").glob("debian-archive-keyring.*"), None)
    if keyring is None or shutil.which("apt-get") is None:
        raise ImageError("only Debian's apt and debian-archive-keyring can renew the lock: run it on Debian")
    signed = f"Components: main\nSigned-By: {keyring}\n"
    (folder / "debian.sources").write_text(
        f"Types: deb\nURIs: {mirror['debian']}\nSuites: {SUITE} {SUITE}-updates\n{signed}\n"
        f"Types: deb\nURIs: {mirror['debian-security']}\nSuites: {SUITE}-security\n{signed}"
    )
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "debian.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    try:
        subprocess.run(
            ["apt-get", *options, "--error-on=any", "-qq", "update"], check=True, capture_output=True
        )
        shown = subprocess.run(
            ["apt-cache", *options, "--no-all-versions", "show", *PACKAGES], check=True, capture_output=True
        )
    except subprocess.CalledProcessError as error:
        raise ImageError(f"apt cannot read {SUITE} for {architecture}: {error.stderr.decode()}") from error
    return [stanza for stanza in shown.stdout.decode().split("\n\n") if stanza.strip()]


def _members(content: bytes) -> dict[str, bytes]:
    """Return the members of an ``ar`` archive. Source: ar(5)."""
    if not content.startswith(b"!<arch>\n"):
        raise ImageError("a Debian package is no ar archive")
    members, offset = {}, 8
    while offset < len(content):
        name, size = content[offset : offset + 16].decode().strip(), int(content[offset + 48 : offset + 58])
        members[name] = content[offset + 60 : offset + 60 + size]
        offset += 60 + size + size % 2
    return members


def _read_tar(members: Mapping[str, bytes], stem: str) -> Tree:
    tree: Tree = {}
    (content,) = (content for name, content in members.items() if name.startswith(f"{stem}.tar"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = member.name.removeprefix("./").strip("/")
            if member.isdir():
                tree[path] = Folder(member.mode)
            elif member.issym():
                tree[path] = Link(member.linkname)
            elif file := archive.extractfile(member):
                tree[path] = File(file.read(), executable=bool(member.mode & 0o100))
            else:
                raise ImageError(f"{path} in a Debian package is neither file, folder nor link")
    tree.pop(".", None)
    tree.pop("", None)
    return tree


def _content(tree: Tree, path: str) -> bytes:
    entry = tree.get(path)
    if not isinstance(entry, File):
        raise ImageError(f"a Debian package has no file {path}")
    return entry.content
