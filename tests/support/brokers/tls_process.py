"""A broker process with a plain and a TLS listener, and the certificates for it."""

import ssl
from pathlib import Path

from bench.ports import held_port
from tests.support.brokers.process import BrokerProcess
from tests.support.certificates import Authority, Certificate


class TlsBroker(BrokerProcess):
    """`identity` is its certificate, signed by `authority`; clients' certificates count, too."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.authority = Authority(directory / "certificates")
        self.identity: Certificate = self.authority.issue("server")
        self.tls_port = held_port(self, "127.0.0.1")
        super().__init__(
            directory,
            f"listeners.ssl.1=127.0.0.1:{self.tls_port}",
            f"ssl_options.cacertfile={self.authority.certfile}",
            f"ssl_options.certfile={self.identity.certfile}",
            f"ssl_options.keyfile={self.identity.keyfile}",
            "ssl_options.verify=verify_peer",
            *settings,
        )

    @property
    def tls_uri(self) -> str:
        """The TLS listener, for warren's own clients."""
        return f"amqps://guest:guest@127.0.0.1:{self.tls_port}/%2F?cacertfile={self.authority.certfile}"

    def client_context(self, identity: Certificate | None = None) -> ssl.SSLContext:
        """A client's side that trusts this broker."""
        context = ssl.create_default_context(cafile=self.authority.certfile)
        if identity is not None:
            context.load_cert_chain(identity.certfile, identity.keyfile)
        return context

    def log_lines(self, text: str) -> list[str]:
        """The lines of the log with `text` in them."""
        return [line for line in self.log_path.read_text().splitlines() if text in line]

    def has_logged(self, text: str) -> bool:
        """Whether the log has `text`."""
        return text in self.log_path.read_text()
