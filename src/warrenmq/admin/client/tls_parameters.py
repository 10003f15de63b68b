"""The parameters of an `amqps://` URI: whom a client trusts, and how it identifies itself.

The names are those of RabbitMQ's URIs. Unlike RabbitMQ's clients, a client of warren verifies the
node's certificate and name unless the URI says `verify=verify_none`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    import ssl

AMQPS_PORT: Final = 5671
_NAMES: Final = (
    "cacertfile",
    "certfile",
    "keyfile",
    "password",
    "verify",
    "server_name_indication",
)


class TlsParameters:
    """The parameters of one URI; "" = not given.

    Without `cacertfile` the authorities of the system count, or those that the environment
    variables SSL_CERT_FILE and SSL_CERT_DIR name.
    """

    def __init__(self, query: str) -> None:
        """`query` is what stands behind `?`. ValueError for an unknown parameter or value."""
        given: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in _NAMES:
                # The text leaves out `name`: it may be a part of a password with a `?` in it.
                raise ValueError(f"the URI may have the parameters {', '.join(_NAMES)} behind ?")
            given[name] = value
        self.cacertfile: str = given.get("cacertfile", "")
        self.certfile: str = given.get("certfile", "")
        self.keyfile: str = given.get("keyfile", "")
        self.password: str = given.get("password", "")
        # The name that the node's certificate must have; "" = the host.
        self.server_name: str = given.get("server_name_indication", "")
        verify = given.get("verify", "verify_peer")
        if verify not in ("verify_peer", "verify_none"):
            raise ValueError("the URI's parameter verify must be verify_peer or verify_none")
        self.is_verifying: bool = verify == "verify_peer"
        if self.keyfile and not self.certfile:
            raise ValueError("the URI's parameter keyfile needs certfile")

    def wrap(self, connected: socket.socket, host: str) -> ssl.SSLSocket:
        """`connected` after the TLS handshake with `host`.

        ValueError when a file is unusable; OSError, among them ssl.SSLCertVerificationError, when
        the handshake fails.
        """
        return self.ssl_context().wrap_socket(connected, server_hostname=self.server_name or host)

    def ssl_context(self) -> ssl.SSLContext:
        """A new context with the trust and the certificate of the URI.

        ValueError when a file is unusable.
        """
        # Imported here, because clients without TLS start faster without it.
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not self.is_verifying:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.cacertfile:
            try:
                context.load_verify_locations(self.cacertfile)
            except OSError:
                raise ValueError(
                    f"the URI's cacertfile {self.cacertfile!r} holds no certificate in PEM form"
                ) from None
        else:
            context.load_default_certs()
        if self.certfile:
            try:
                context.load_cert_chain(self.certfile, self.keyfile or None, lambda: self.password)
            except OSError:
                raise ValueError(
                    f"the URI's certfile {self.certfile!r} and keyfile {self.keyfile!r} are no "
                    "certificate with its key"
                ) from None
        return context
