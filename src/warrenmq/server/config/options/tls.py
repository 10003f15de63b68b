"""The options of TLS listeners, as `ssl_options.*` of rabbitmq.conf gives them."""

from pathlib import Path
from typing import Literal, NamedTuple


class TlsOptions(NamedTuple):
    """Certificates, demands on the client, and the protocol versions of all TLS listeners."""

    cacertfile: Path | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    # Password of the private key; "" = the key is not encrypted.
    password: str = ""
    verify: Literal["verify_none", "verify_peer"] = "verify_none"
    # Refuse a client without a certificate; applies with verify_peer only.
    fail_if_no_peer_cert: bool = False
    # Largest number of intermediate certificates between the client's certificate and its root.
    depth: int = 10
    # RabbitMQ's names: tlsv1, tlsv1.1, tlsv1.2, tlsv1.3; empty = TLS 1.2 and 1.3.
    versions: tuple[str, ...] = ()
    # OpenSSL's names of cipher suites; empty = the library's choice.
    ciphers: tuple[str, ...] = ()
    # The server's order of ciphers decides, not the client's.
    honor_cipher_order: bool = False

    def __repr__(self) -> str:
        return f"TlsOptions(certfile={self.certfile!r}, keyfile={self.keyfile!r})"
