"""A certificate for the TLS listeners of the brokers under test, made by the openssl command."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass
class Certificate:
    """PEM files of a certificate for 127.0.0.1, which is its own authority, and of its key."""

    certfile: Path
    keyfile: Path

    @classmethod
    def make(cls, directory: Path) -> Self | None:
        """A new certificate with a key on P-256; None where openssl is not installed."""
        if shutil.which("openssl") is None:
            return None
        made = cls(directory / "certificate.pem", directory / "key.pem")
        command = ["openssl", "req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1"]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-keyout", str(made.keyfile), "-out", str(made.certfile)]
        subprocess.run(command, check=True, capture_output=True)
        return made

    def settings(self, port: int) -> tuple[str, ...]:
        """Lines of rabbitmq.conf for a listener on `port` that asks clients for no certificate."""
        return (
            f"listeners.ssl.1 = 127.0.0.1:{port}",
            f"ssl_options.cacertfile = {self.certfile}",
            f"ssl_options.certfile = {self.certfile}",
            f"ssl_options.keyfile = {self.keyfile}",
            "ssl_options.verify = verify_none",
            "ssl_options.fail_if_no_peer_cert = false",
        )
