"""The options of the listeners of HTTP: the API (`management.*`) and metrics (`prometheus.*`).

The node parses them and hands them, as JSON, to the management process, which listens.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from warrenmq.offline.data_directory import JOBS_NAME
from warrenmq.server.config.options.tls import TlsOptions

API_PORT: Final = 15672
API_TLS_PORT: Final = 15671
METRICS_PORT: Final = 15692
METRICS_TLS_PORT: Final = 15691
# The value of a key that turns listeners off.
OFF: Final = "off"
_LOOPBACK: Final = "127.0.0.1"


class HttpListener(NamedTuple):
    """Keys such as `management.tcp.*`; None: not given."""

    ip: str | None = None
    port: int | None = None
    # Milliseconds for the head of a request.
    request_timeout_ms: int = 5000
    # Milliseconds in which a client must send, or take, a part of a body.
    idle_timeout_ms: int = 60000
    # Whether large replies are compressed for clients that accept it.
    compress: bool = True

    @property
    def is_given(self) -> bool:
        """Whether some key says where to listen."""
        return self.ip is not None or self.port is not None


class Listening(NamedTuple):
    """One socket that listens; host "" means every address, and port 0 any free port."""

    host: str
    port: int
    options: HttpListener
    tls: TlsOptions | None = None

    @property
    def where(self) -> str:
        """HOST:PORT."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host or '*'}:{self.port}"


_DEFAULTS: Final = HttpListener()
_NO_TLS: Final = TlsOptions()


@dataclass(frozen=True)
class HttpOptions:
    """Where a site listens."""

    # (host, port) without TLS, or `OFF`; None: the key is not given.
    listen: tuple[str, int] | str | None = None
    tcp: HttpListener = _DEFAULTS
    ssl: HttpListener = _DEFAULTS
    tls: TlsOptions = _NO_TLS
    # `management.listener.ssl`: the listener of `tcp` speaks TLS.
    is_tls: bool = False

    @property
    def is_off(self) -> bool:
        """Whether nothing listens."""
        return self.listen == OFF

    @property
    def needs_certificate(self) -> bool:
        """Whether a listener speaks TLS, and its certificate or its key is missing."""
        has_both = self.tls.certfile is not None and self.tls.keyfile is not None
        return (self.is_tls or self._has_tls_listener) and not has_both

    @property
    def _has_tls_listener(self) -> bool:
        has_identity = self.tls.certfile is not None or self.tls.keyfile is not None
        return self.ssl.is_given or (has_identity and not self.is_tls)

    def listening(self, port: int, tls_port: int) -> list[Listening]:
        """All listeners, given their default ports.

        As in RabbitMQ, a TLS listener alone replaces the default one without TLS, and a listener
        with a port and no address is open on every address.
        """
        if self.is_off:
            return []
        found: list[Listening] = []
        tls_of_tcp = self.tls if self.is_tls else None
        if isinstance(self.listen, tuple):
            found.append(Listening(*self.listen, self.tcp, tls_of_tcp))
        elif self.tcp.is_given or not self._has_tls_listener:
            ip = self.tcp.ip
            if ip is None:
                ip = "" if self.tcp.is_given else _LOOPBACK
            chosen = port if self.tcp.port is None else self.tcp.port
            found.append(Listening(ip, chosen, self.tcp, tls_of_tcp))
        if self._has_tls_listener:
            chosen = tls_port if self.ssl.port is None else self.ssl.port
            found.append(Listening(self.ssl.ip or "", chosen, self.ssl, self.tls))
        return found

    def shifted(self, by: int, port: int, tls_port: int) -> Self:
        """These options with ports that are higher `by`, given the default ports; 0 stays."""
        if self.is_off:
            return self
        found, listen, ssl = self.listening(port, tls_port), self.listen, self.ssl
        if self._has_tls_listener:
            ssl = ssl._replace(port=shifted_port(found.pop().port, by))
        if found:
            listen = (found[0].host, shifted_port(found[0].port, by))
        return replace(self, listen=listen, ssl=ssl)


def shifted_port(port: int, by: int) -> int:
    """The port that is higher `by`; 0, any free port, stays."""
    return port + by if port else 0


@dataclass(frozen=True)
class ManagementOptions(HttpOptions):
    """`management.*`: the HTTP API."""

    # Stands before all paths; "" or a text that begins with `/` and does not end with it.
    path_prefix: str = ""
    # Origins of other sites whose pages may use the API in a browser; `*` stands for all.
    cors_origins: tuple[str, ...] = ()
    # Seconds for which a browser remembers that.
    cors_max_age: int = 1800
    # Largest body of a request (bytes).
    max_body_size: int = 10_000_000
    # Connections at the same time; one more is answered with 503.
    max_connections: int = 1000
    # Directory of a log with a line for each request.
    http_log_dir: Path | None = None
    # (name, value) of headers that replies have.
    headers: tuple[tuple[str, str], ...] = ()
    # basic, detailed or none: whether rates of messages are shown.
    rates_mode: str = "basic"
    # Objects are shown without statistics, but with the lengths of queues if these are wanted.
    disable_stats: bool = False
    enable_queue_totals: bool = False
    # A long listing of queues is used again for so many times as long as it took.
    db_cache_multiplier: int = 5
    # A page that nobody uses for so long signs its user out (minutes).
    session_timeout: int = 480
    # Interval between two ticks of statistics (ms).
    statistics_interval_ms: int = 5000
    # Where their history is kept; None: nowhere, or in the data directory of the node.
    statistics_file: Path | None = None
    # Below it read and write the jobs that are started over HTTP; None: `jobs` in the node's data
    # directory, if the process is a node's.
    jobs_directory: Path | None = None

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of that site may use the API."""
        return origin in self.cors_origins or "*" in self.cors_origins

    def api_listeners(self) -> list[Listening]:
        """The listeners of the API."""
        return self.listening(API_PORT, API_TLS_PORT)


@dataclass(frozen=True)
class MetricsOptions(HttpOptions):
    """`prometheus.*`: the pages of metrics, for all who reach the port."""

    path: str = "/metrics"
    # The first page has labels for each object, as `/per-object` below it.
    is_per_object: bool = False

    def metrics_listeners(self) -> list[Listening]:
        """The listeners of metrics."""
        return self.listening(METRICS_PORT, METRICS_TLS_PORT)


@dataclass(frozen=True)
class SiteOptions:
    """All that the management process serves."""

    management: ManagementOptions = ManagementOptions()
    metrics: MetricsOptions = MetricsOptions()
    # The data directory of the node that runs the process, which runs the node's jobs then.
    data_dir: Path | None = None

    def beside_node(self, data_dir: Path) -> "SiteOptions":
        """These options for the process of the node on `data_dir`: its files are there.

        The options say where else the history of statistics and the files of jobs may be.
        """
        management = replace(
            self.management,
            statistics_file=self.management.statistics_file or data_dir / "statistics.sqlite",
            jobs_directory=self.management.jobs_directory or data_dir / JOBS_NAME,
        )
        return replace(self, management=management, data_dir=data_dir)

    def to_line(self) -> bytes:
        """One line of JSON, with passwords: for the pipe between node and management process."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "SiteOptions":
        """The options in a line of `to_line`."""
        return msgspec.json.decode(line, type=cls, dec_hook=_path)


def _path(kind: type[Any], text: Any) -> Any:
    return kind(text)
