"""TLS of the node links: each side shows a certificate that an authority of the cluster has issued.

A certificate need not name a host: nodes are known by the names in their handshake, which they
prove with the cluster's secret.
"""

import ssl
from pathlib import Path
from typing import NamedTuple

from warrenmq.cluster.errors import ClusterError


class LinkTlsError(ClusterError):
    """Files that cannot be used; the text names the file and the reason."""


class LinkTls(NamedTuple):
    """The contexts of both roles."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext


def link_tls(cacertfile: Path, certfile: Path, keyfile: Path, password: str) -> LinkTls:
    """Contexts from PEM files: the authorities, and the node's certificate and key.

    `password` opens an encrypted key. Raises LinkTlsError.
    """
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cacertfile)
        except OSError as error:
            raise LinkTlsError(f"{cacertfile} holds no usable certificate: {error}") from None
        try:
            # Without the callable OpenSSL would ask for the password on the terminal.
            context.load_cert_chain(certfile, keyfile, lambda: password)
        except OSError as error:
            raise LinkTlsError(f"{certfile} and {keyfile} cannot be used: {error}") from None
        contexts.append(context)
    return LinkTls(*contexts)


def tls_fault(error: OSError) -> str:
    """`error` of a connection in words for one line of the log, whether it speaks TLS or not."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the other side's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "the other side does not speak TLS"
        return f"TLS: {error.reason or error}"
    return error.strerror or str(error) or "the connection was lost"
