"""The certificates of an operator's webhook, in the form in which Go operators keep them."""

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def webhook_certificates(service: str, authority: str) -> dict[str, bytes]:
    """Return the Secret in which an operator keeps its webhook's certificates, for the Service's name and for loopback.

    Operators that rotate them with Open Policy Agent's cert-controller read RSA keys alone, and replace a certificate of another
    authority or one that ends within three months.
    """
    ca_key, key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    names = [x509.DNSName(service), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    ca = (
        _builder(authority, authority, ca_key, [x509.DNSName(authority)])
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    leaf = (
        _builder(service, authority, key, names)
        .add_extension(usage, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return {
        "ca.crt": ca.public_bytes(serialization.Encoding.PEM),
        "ca.key": _private_pem(ca_key),
        "tls.crt": leaf.public_bytes(serialization.Encoding.PEM),
        "tls.key": _private_pem(key),
    }


def _builder(
    name: str, issuer: str, key: rsa.RSAPrivateKey, names: Sequence[x509.GeneralName]
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )


def _private_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
