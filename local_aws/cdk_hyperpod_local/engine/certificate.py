"""The engine's own certificate authority, so that clients verify TLS as they do on AWS."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509  # type: ignore[import-not-found]
from cryptography.hazmat.primitives import hashes, serialization  # type: ignore[import-not-found]
from cryptography.hazmat.primitives.asymmetric import ec  # type: ignore[import-not-found]
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # type: ignore[import-not-found]

_VALID = datetime.timedelta(days=365)


def ensure(authority: Path, certificate: Path, key: Path) -> None:
    """Write the three files, unless a valid set exists already: the clients of a restarted engine still trust that
    one."""
    if authority.exists() and key.exists() and certificate.exists():
        current = x509.load_pem_x509_certificate(certificate.read_bytes())
        if current.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1):
            return
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("local AWS engine: certificate authority")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = (
        _builder(_name("local AWS engine"), ca_name, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    # The authority's key is never written to disk, so that nothing else can be signed with it later.
    key.touch(mode=0o600)
    key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    authority.write_bytes(ca.public_bytes(serialization.Encoding.PEM))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
