"""Certificates for tests of TLS, made by the openssl command; their keys are of elliptic curves."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

DAYS = "30"
# The names under which tests reach a broker.
SERVER_NAMES = "DNS:localhost,IP:127.0.0.1"


@dataclass
class Certificate:
    """PEM files of a certificate and of its key."""

    certfile: Path
    keyfile: Path


class Authority(Certificate):
    """A certificate authority, self-signed or signed by `issuer`, with files in a directory."""

    def __init__(self, directory: Path, name: str = "authority", issuer: "Authority | None" = None):
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        made = _make(directory, name, f"/CN={name}", issuer, "basicConstraints=critical,CA:true")
        super().__init__(made.certfile, made.keyfile)

    def issue(self, name: str, subject: str = "", names: str = SERVER_NAMES) -> Certificate:
        """A certificate for `subject` (as in `openssl req -subj`, default `/CN=NAME`)."""
        subject = subject or f"/CN={name}"
        return _make(self._directory, name, subject, self, f"subjectAltName={names}")


def encrypted_key(certificate: Certificate, password: str) -> Path:
    """A copy of the certificate's key that only `password` opens."""
    path = certificate.keyfile.with_suffix(".encrypted.pem")
    _run(
        "pkey", "-in", str(certificate.keyfile), "-out", str(path), "-aes256",
        "-passout", f"pass:{password}",
    )  # fmt: skip
    return path


def chain_file(path: Path, *certificates: Certificate) -> Path:
    """A PEM file at `path` with all of `certificates`, in this order."""
    path.write_text("".join(each.certfile.read_text() for each in certificates))
    return path


def _make(
    directory: Path, name: str, subject: str, issuer: Certificate | None, extension: str
) -> Certificate:
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    signing = [] if issuer is None else ["-CA", str(issuer.certfile), "-CAkey", str(issuer.keyfile)]
    _run(
        "req", "-x509", "-utf8", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", DAYS, "-subj", subject, "-addext", extension,
        "-keyout", str(made.keyfile), "-out", str(made.certfile), *signing,
    )  # fmt: skip
    return made


def _run(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
