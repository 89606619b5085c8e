"""The certificate of the metrics endpoint: made in memory, read from files, replaced while connections are served."""

import asyncio
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from controller.server import certificate
from controller.server.certificate import (
    CHECK_SECONDS,
    LIFETIME,
    CertificateFiles,
    KeyPair,
    SelfSigned,
    ServingCertificate,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class Observed:
    """Counts what is observed."""

    def __init__(self) -> None:
        self.expiries: list[datetime] = []
        self.failures = 0

    def certificate_read(self, expires_at: datetime) -> None:
        self.expiries.append(expires_at)

    def certificate_failed(self) -> None:
        self.failures += 1


def new_pair() -> KeyPair:
    return SelfSigned("pod-0", Clock())()


def write(folder: Path, pair: KeyPair) -> None:
    (folder / "tls.crt").write_bytes(pair.chain)
    (folder / "tls.key").write_bytes(pair.key)


def served(context: ssl.SSLContext) -> tuple[bytes, str, str | None]:
    """Return the certificate (DER), the version and the protocol that a client gets in a handshake in memory."""
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    client_context.set_alpn_protocols(["h2", "http/1.1"])
    client, server = _connected(client_context, context)
    return (
        client.getpeercert(binary_form=True) or b"",
        server.version() or "",
        client.selected_alpn_protocol(),
    )


def _connected(
    client_context: ssl.SSLContext, server_context: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(down, up)
    server = server_context.wrap_bio(up, down, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client, server


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def open_files() -> int:
    return len(names(Path("/proc/self/fd")))


def der(pair: KeyPair) -> bytes:
    return x509.load_pem_x509_certificate(pair.chain).public_bytes(serialization.Encoding.DER)


async def test_a_self_signed_certificate_names_the_host_and_lasts_a_year() -> None:
    observed = Observed()
    own = ServingCertificate(SelfSigned("pod-0", Clock()), observed)

    await own.refresh()

    context = own.context()
    assert context is not None
    shown, version, protocol = served(context)
    found = x509.load_der_x509_certificate(shown)
    hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost", "pod-0"]
    assert observed.expiries == [NOW + LIFETIME] == [found.not_valid_after_utc]
    assert (version, protocol) == ("TLSv1.3", "http/1.1")


@pytest.mark.parametrize("host", ["", "localhost", "müller", "a" * 63, "a" * 300])
async def test_any_name_of_a_host_has_a_certificate(host: str) -> None:
    own = ServingCertificate(SelfSigned(host, Clock()), Observed())

    await own.refresh()

    assert own.context() is not None


async def test_an_unexpected_error_of_a_certificate_ends_nothing() -> None:
    def fail() -> KeyPair:
        raise RuntimeError("a defect")

    observed = Observed()
    own = ServingCertificate(fail, observed)

    with capture_logs() as logs:
        await own.refresh()

    assert observed.failures == 1
    assert logs[0]["error"] == "RuntimeError: a defect"


async def test_clients_that_do_not_know_tls_1_2_are_refused() -> None:
    own = ServingCertificate(SelfSigned("pod-0", Clock()), Observed())
    await own.refresh()
    context = own.context()
    assert context is not None

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_a_self_signed_certificate_is_replaced_after_two_thirds_of_its_lifetime() -> None:
    clock = Clock()
    signed = SelfSigned("pod-0", clock)
    first = signed()

    clock.now += LIFETIME * 2 / 3 - timedelta(seconds=1)
    assert signed() is first
    clock.now += timedelta(seconds=1)
    assert signed() != first


async def test_new_connections_get_the_certificate_of_replaced_files(tmp_path: Path) -> None:
    first, second, observed = new_pair(), new_pair(), Observed()
    write(tmp_path, first)
    files = ServingCertificate(CertificateFiles(str(tmp_path), "tls.crt", "tls.key"), observed)
    await files.refresh()
    before = files.context()
    task = asyncio.create_task(files.run())

    write(tmp_path, second)
    await asyncio.sleep(2 * CHECK_SECONDS + 1)
    task.cancel()

    after = files.context()
    assert before is not None
    assert after is not None
    assert (served(before)[0], served(after)[0]) == (der(first), der(second))
    assert len(observed.expiries) == 2


async def test_an_unchanged_certificate_is_loaded_once(tmp_path: Path) -> None:
    observed = Observed()
    write(tmp_path, new_pair())
    files = ServingCertificate(CertificateFiles(str(tmp_path), "tls.crt", "tls.key"), observed)

    await files.refresh()
    context = files.context()
    await files.refresh()

    assert files.context() is context
    assert len(observed.expiries) == 1


def encrypted(pair: KeyPair) -> bytes:
    key = serialization.load_pem_private_key(pair.key, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


@pytest.mark.parametrize("broken", ["missing", "empty", "of another certificate", "garbage", "encrypted"])
async def test_a_broken_certificate_leaves_the_last_one_in_use(tmp_path: Path, broken: str) -> None:
    observed = Observed()
    pair = new_pair()
    write(tmp_path, pair)
    files = ServingCertificate(CertificateFiles(str(tmp_path), "tls.crt", "tls.key"), observed)
    await files.refresh()
    context = files.context()

    write(tmp_path, new_pair())
    key = tmp_path / "tls.key"
    match broken:
        case "missing":
            key.unlink()
        case "empty":
            (tmp_path / "tls.crt").write_bytes(b"")
        case "of another certificate":
            key.write_bytes(pair.key)
        case "garbage":
            key.write_bytes(b"-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n")
        case _:
            key.write_bytes(encrypted(pair))
    with capture_logs() as logs:
        await files.refresh()
        await files.refresh()

    assert files.context() is context
    assert observed.failures == 2
    assert [(line["event"], line["consequence"]) for line in logs] == [
        ("metrics certificate cannot be loaded", "the last one stays in use")
    ]
    assert "secret" not in str(logs)


async def test_a_missing_certificate_is_loaded_when_it_is_there(tmp_path: Path) -> None:
    files = ServingCertificate(CertificateFiles(str(tmp_path), "tls.crt", "tls.key"), Observed())
    with capture_logs() as logs:
        await files.refresh()
    assert files.context() is None
    assert logs[0]["consequence"] == "/metrics is not served"
    assert f"{tmp_path}/tls.crt" in logs[0]["error"]

    write(tmp_path, new_pair())
    await files.refresh()

    assert files.context() is not None


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files in memory")
async def test_no_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root file system is read-only, and a full ``/tmp`` must not end the operator."""
    monkeypatch.setattr("tempfile.mkstemp", lambda: pytest.fail("a temporary file"))
    own = ServingCertificate(SelfSigned("pod-0", Clock()), Observed())
    before = open_files()

    await own.refresh()

    assert own.context() is not None
    assert open_files() == before


async def test_without_files_in_memory_a_temporary_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = ServingCertificate(SelfSigned("pod-0", Clock()), Observed())

    await own.refresh()

    assert own.context() is not None
    assert names(tmp_path) == []


async def test_a_full_file_system_fails_the_load_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> tuple[int, str]:
        raise OSError(28, "No space left on device")

    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.mkstemp", full)
    observed = Observed()
    own = ServingCertificate(SelfSigned("pod-0", Clock()), observed)

    with capture_logs() as logs:
        await own.refresh()

    assert (own.context(), observed.failures) == (None, 1)
    assert "No space left on device" in logs[0]["error"]


def test_a_pair_does_not_show_its_key() -> None:
    assert "PRIVATE" not in repr(new_pair())


def test_keys_are_of_a_curve_that_all_clients_know() -> None:
    key = serialization.load_pem_private_key(new_pair().key, None)

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"


def test_the_module_does_not_import_cryptography_until_it_is_used() -> None:
    """It takes 7 MiB, which an operator without the flag does not pay."""
    assert not {name for name in vars(certificate) if name in {"x509", "cryptography"}}
