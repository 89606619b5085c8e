"""The serving certificate of the metrics endpoint: from files that rotate, or self-signed and in memory.

An unusable certificate never stops the operator: the last one stays in use, and without one the endpoint closes each
connection. The log and the metrics say so.

Source: kubebuilder 4, the scaffold of cmd/main.go (flags and names of files); controller-runtime 0.22, pkg/certwatcher/certwatcher.go
(interval, metrics).
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import structlog

from controller.runtime import clock

log = structlog.get_logger()

CHECK_SECONDS = 10.0
"""How often the files are read, and the age of a self-signed certificate is checked."""
LIFETIME = timedelta(days=365)
"""How long a self-signed certificate is valid. It is replaced after two thirds of that."""
CLOCK_SKEW = timedelta(hours=1)
"""How far the clocks of clients may be behind."""
NAME = "training-operator-metrics"
"""The common name of a self-signed certificate."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its intermediate ones, and its private key; both as PEM."""

    chain: bytes
    key: bytes = field(repr=False)


class CertificateObserver(Protocol):
    """Receives each attempt to load a certificate that differs from the last one, and each failure to read it."""

    def certificate_read(self, expires_at: datetime) -> None: ...
    def certificate_failed(self) -> None: ...


class ServingCertificate:
    """The TLS context of a server; new connections get the newest certificate."""

    def __init__(self, read: Callable[[], KeyPair], observer: CertificateObserver) -> None:
        """``read`` returns the current pair; it runs in a thread, and may raise."""
        self._read = read
        self._observer = observer
        self._pair: KeyPair | None = None
        self._context: ssl.SSLContext | None = None
        self._failure = ""

    def context(self) -> ssl.SSLContext | None:
        """Return the current context; None until a certificate has been loaded."""
        return self._context

    async def run(self) -> None:
        """Check for another certificate every ``CHECK_SECONDS``, until canceled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Load the certificate if it has changed. If that fails, log it once and keep the last one."""
        try:
            pair = await asyncio.to_thread(self._read)
            if pair == self._pair:
                self._failure = ""
                return
            context, expires_at = await asyncio.to_thread(_load, pair)
        except Exception as error:  # noqa: BLE001 - whatever the libraries raise for a certificate, jobs go on
            self._failed(f"{type(error).__name__}: {error}")
            return
        self._pair, self._context, self._failure = pair, context, ""
        self._observer.certificate_read(expires_at)
        log.info("metrics certificate loaded", expires=expires_at.isoformat())

    def _failed(self, why: str) -> None:
        self._observer.certificate_failed()
        if why != self._failure:
            self._failure = why
            log.error(
                "metrics certificate cannot be loaded",
                error=why,
                consequence="the last one stays in use" if self._context else "/metrics is not served",
            )


class CertificateFiles:
    """Reads a pair from the files of a mounted Secret, which the kubelet replaces.

    Between reading one file and the other they may be replaced; such a pair does not match, and the next check reads it again.
    """

    def __init__(self, folder: str, certificate: str, key: str) -> None:
        self._certificate = Path(folder, certificate)
        self._key = Path(folder, key)

    def __call__(self) -> KeyPair:
        return KeyPair(self._certificate.read_bytes(), self._key.read_bytes())


class SelfSigned:
    """Makes a pair, and another one when two thirds of its lifetime are over. Nothing is written to disk."""

    def __init__(self, host: str, now: Callable[[], datetime] = clock.now) -> None:
        """``host`` is the name of this machine or pod."""
        self._host = host
        self._now = now
        self._pair: KeyPair | None = None
        self._renew_at = datetime.min.replace(tzinfo=UTC)

    def __call__(self) -> KeyPair:
        now = self._now()
        if self._pair is None or now >= self._renew_at:
            self._pair, self._renew_at = _self_signed(self._host, now), now + LIFETIME * 2 / 3
        return self._pair


def _load(pair: KeyPair) -> tuple[ssl.SSLContext, datetime]:
    """Return a context with the pair, and when the certificate expires.

    Raises:
        ssl.SSLError: the certificate or the key is malformed or encrypted, or they do not match.
        ValueError: there is no certificate.
        OSError: there is neither memory nor space for it.
    """
    from cryptography import x509  # 7 MiB

    expires_at = x509.load_pem_x509_certificate(pair.chain).not_valid_after_utc
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with _readable(pair.chain + b"\n" + pair.key) as path:
        # The empty password makes OpenSSL refuse an encrypted key; it would ask for one on the terminal otherwise.
        context.load_cert_chain(path, password="")
    return context, expires_at


@contextmanager
def _readable(content: bytes) -> Generator[str]:
    """Yield the path of a file with the content, which the ssl module requires: in memory on Linux, else a temporary one."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("metrics-certificate")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            Path(path).unlink()


def _self_signed(host: str, now: datetime) -> KeyPair:
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    names = [
        *(x509.DNSName(text) for text in dict.fromkeys(("localhost", host)) if text and text.isascii()),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private)
