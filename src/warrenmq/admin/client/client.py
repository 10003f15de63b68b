"""A blocking client of the admin protocol, for programs outside the node: Spark, the command line.

One socket, one request at a time. Errors come in three kinds, because callers treat them
differently. AdminRefusedError is the node's final answer. NodeUnreachableError may pass when the
node is back, except its subclasses OtherBrokerError and TlsRefusedError. ValueError means that a
URI is malformed. No text of an error contains the password.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

from warrenmq.admin.client.control_file import ControlFile
from warrenmq.admin.client.tls_parameters import AMQPS_PORT, TlsParameters
from warrenmq.admin.protocol import requests

DEFAULT_PORT: Final = 5672
# Environment variable with the node's URI, for programs and commands that are given none. A
# password in it need not appear in a program or a command line.
URI_VARIABLE: Final = "WARREN_URI"
# How long jobs retry when a node does not answer (s), unless told otherwise.
RETRY_TIMEOUT_S: Final = 120.0
CONNECT_TIMEOUT_S: Final = 10.0
# Longest time for a reply (s) beyond the wait that the request allows the node: covers a commit on
# a slow disk and a large block.
REPLY_TIMEOUT_S: Final = 60.0

ReplyType = TypeVar("ReplyType", bound=requests.Reply)


class AdminRefusedError(Exception):
    """The node refused a request; `code` is one of the protocol's codes."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type["AdminRefusedError"], tuple[str, str]]:
        # Spark pickles the exceptions of its workers.
        return type(self), (self.code, self.text)


class NodeUnreachableError(Exception):
    """There is no connection, or it broke: the node may or may not have carried out the request."""


class OtherBrokerError(NodeUnreachableError):
    """The peer speaks AMQP but not this version of the admin protocol; a retry does not help."""


class TlsRefusedError(NodeUnreachableError):
    """There is no TLS between client and node; a retry does not help.

    The node's certificate is not trusted, the node speaks no TLS, or a file of the URI is unusable.
    """


class NodeAddress:
    """Address and login of a node, parsed from an AMQP URI; its repr leaves the password out."""

    def __init__(self, uri: str) -> None:
        try:
            parts = urlsplit(uri)
        except ValueError:
            # The parser's text may contain the password.
            raise ValueError(
                "the URI cannot be read: special characters in names and password must be percent-encoded"
            ) from None
        if parts.scheme not in ("amqp", "amqps") or "://" not in uri:
            raise ValueError(
                f"the URI must begin with amqp:// or amqps:// (it begins with {parts.scheme or 'no scheme'!r})"
            )
        try:
            port = parts.port
        except ValueError:
            raise ValueError("the URI's port is not a number between 0 and 65535") from None
        if parts.fragment or (parts.query and parts.scheme == "amqp"):
            raise ValueError(
                "the URI must end with the vhost: only amqps:// has parameters behind ?, and none has any behind #"
            )
        # None = a connection without TLS.
        self.tls: TlsParameters | None = None
        if parts.scheme == "amqps":
            self.tls = TlsParameters(parts.query)
        default_port = DEFAULT_PORT if self.tls is None else AMQPS_PORT
        self.host: str = parts.hostname or "localhost"
        self.port: int = default_port if port is None else port
        self.user: str = "guest" if parts.username is None else unquote(parts.username)
        self.password: str = "guest" if parts.password is None else unquote(parts.password)
        try:
            self.host.encode("idna")
        except UnicodeError:
            raise ValueError(f"the URI's host '{self.host}' is no name of a machine") from None
        # Like other AMQP clients: no path means the vhost "/", and so does an empty one
        # ("amqp://host/").
        self.vhost: str = unquote(parts.path[1:]) or "/"

    def __repr__(self) -> str:
        return f"NodeAddress({self.user!r} at {self.host}:{self.port}, vhost {self.vhost!r})"

    @property
    def where(self) -> str:
        """host:port, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def login(self, client: str) -> requests.Request:
        """The first request of a session; `client` describes its client for people."""
        return requests.Login(self.user, self.password, self.vhost, client)


def open_socket(address: NodeAddress) -> socket.socket:
    """A connected socket, after the TLS handshake if the URI begins with amqps://.

    Raises OSError when there is no connection, and TlsRefusedError.
    """
    connected = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected if address.tls is None else _with_tls(connected, address, address.tls)
    except BaseException:
        connected.close()
        raise


def _with_tls(
    connected: socket.socket, address: NodeAddress, parameters: TlsParameters
) -> socket.socket:
    # Imported here, because commands that use no TLS start faster without it.
    import ssl

    try:
        return parameters.wrap(connected, address.host)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        # A node that stops closes connections in the midst of a handshake.
        raise
    except ssl.SSLCertVerificationError as error:
        reason = f"its certificate is not trusted: {error.verify_message}"
    except ssl.SSLError as error:
        reason = f"the TLS handshake failed: {error.reason or error}"
    except ValueError as error:
        reason = str(error)
    raise TlsRefusedError(f"no TLS connection to {address.where}: {reason}")


class LocalAddress(NodeAddress):
    """A node of this machine, as its control file describes it; logs in with the file's token."""

    def __init__(self, control: ControlFile, vhost: str = "") -> None:
        super().__init__(f"amqp://{control.address}")
        self.vhost = vhost
        self._token = control.token

    def login(self, client: str) -> requests.Request:
        """See NodeAddress."""
        return requests.LocalLogin(self._token, self.vhost, client)


class AdminClient:
    """A logged-in connection. Connects in its constructor; a context manager that closes.

    The node has `patience_s` for each reply, beyond the wait that the request allows it.
    """

    def __init__(
        self, address: NodeAddress, purpose: str = "", patience_s: float = REPLY_TIMEOUT_S
    ) -> None:
        self._address = address
        self._patience_s = patience_s
        try:
            self._socket = open_socket(address)
            self._socket.sendall(requests.PROTOCOL_HEADER)
        except OSError as error:
            raise NodeUnreachableError(f"no connection to {address.where}: {error}") from None
        client = f"process {os.getpid()} on {socket.gethostname()}" + (
            f" ({purpose})" if purpose else ""
        )
        try:
            self.request(address.login(client[:255]), requests.LoggedIn)
        except (AdminRefusedError, NodeUnreachableError):
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def request(
        self, request: requests.Request, expected: type[ReplyType], wait_s: float = 0.0
    ) -> ReplyType:
        """Send `request` and return its reply, which the node may delay for `wait_s` seconds.

        Raises AdminRefusedError when the node refuses, and NodeUnreachableError when the connection
        breaks. Without a whole reply the connection is closed, whatever the error.
        """
        self.send(request, wait_s)
        return self.receive(expected, wait_s)

    def send(self, request: requests.Request, wait_s: float = 0.0) -> None:
        """Send `request`, whose reply `receive` takes, before the next request. See `request`."""
        frame = requests.encode_frame(request)
        with self._closing_on_failure(wait_s):
            self._socket.sendall(frame)

    def receive(self, expected: type[ReplyType], wait_s: float = 0.0) -> ReplyType:
        """The reply to what `send` has sent. See `request`."""
        with self._closing_on_failure(wait_s):
            reply = self._read_reply()
        if isinstance(reply, requests.ErrorReply):
            raise AdminRefusedError(reply.code, reply.text)
        if not isinstance(reply, expected):
            self.close()
            raise NodeUnreachableError(
                f"{self._address.where} answered {type(reply).__name__}, not {expected.__name__}"
            )
        return reply

    @contextlib.contextmanager
    def _closing_on_failure(self, wait_s: float) -> Iterator[None]:
        """Give the node `wait_s` more than its patience; close the connection on any failure."""
        try:
            self._socket.settimeout(wait_s + self._patience_s)
            yield
        except TimeoutError:
            self.close()
            raise NodeUnreachableError(
                f"{self._address.where} did not answer within {wait_s + self._patience_s:g} s"
            ) from None
        except OSError as error:
            self.close()
            raise NodeUnreachableError(
                f"the connection to {self._address.where} broke: {error}"
            ) from None
        except ValueError as error:
            self.close()
            raise NodeUnreachableError(
                f"{self._address.where} does not speak warren's admin protocol: {error}"
            ) from None
        except BaseException:
            # For example after an interrupt: the late reply must not pass for the reply to another
            # request.
            self.close()
            raise

    def _read_reply(self) -> requests.Reply:
        head = self._read(requests.LENGTH_BYTES)
        if head == b"AMQP":
            raise OtherBrokerError(
                f"{self._address.where} is an AMQP broker of another kind or version"
            )
        length = int.from_bytes(head, "big")
        if length > requests.REPLY_BYTES_MAX:
            raise ValueError(f"a reply of {length} bytes")
        return requests.decode_reply(self._read(length))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        filled = 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionResetError("the node closed it")
            filled += count
        return data
