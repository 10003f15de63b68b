"""The options of a run, checked before a socket is opened.

`PerfOptions` is the parsed command line, with PerfTest's names where it has them. Only `validate`
knows which combinations make no sense; the engine can run every value that it accepts.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from warrenmq.admin.client.tls_parameters import AMQPS_PORT, TlsParameters
from warrenmq.perf.errors import PerfError

FLAGS: Final = ("persistent", "mandatory")
DEFAULT_PORT: Final = 5672
NANOSECONDS: Final = 1_000_000_000
MESSAGE_BYTES_MAX: Final = 512 * 1024 * 1024
PREFETCH_MAX: Final = 65535
# Time (s) that a run without --time waits for its consumers after the last publish.
DRAIN_S: Final = 30.0
# A priority is one octet.
PRIORITIES_MAX: Final = 256


@dataclass
class Address:
    """Address and login from an `amqp://` or `amqps://` URI."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    # None = no TLS.
    tls: TlsParameters | None


def parse_uri(uri: str) -> Address:
    """The parts of `amqp://user:password@host:port/vhost`. Raises PerfError.

    guest, guest, 5672 (5671 for amqps) and `/` replace the parts that are left out. The parameters
    behind `?` are those of `TlsParameters`.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("amqp", "amqps"):
        raise PerfError(f"--uri {uri!r}: only amqp:// and amqps:// are supported")
    if not parts.hostname:
        raise PerfError(f"--uri {uri!r}: the host is missing")
    try:
        port = parts.port
        tls = TlsParameters(parts.query) if parts.scheme == "amqps" else None
    except ValueError as error:
        raise PerfError(f"--uri {uri!r}: {error}") from None
    # An empty path means the default vhost, `amqp://host/` the vhost with the empty name (RabbitMQ
    # URI specification).
    vhost = unquote(parts.path[1:]) if parts.path else "/"
    return Address(
        host=parts.hostname,
        port=(DEFAULT_PORT if tls is None else AMQPS_PORT) if port is None else port,
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=vhost,
        tls=tls,
    )


def parse_arguments(text: str) -> dict[str, object]:
    """The table of a text such as `x-max-length=10,x-queue-mode=lazy`. Raises PerfError.

    Numbers become integers, true and false booleans, the rest strings.
    """
    arguments: dict[str, object] = {}
    if not text:
        return arguments
    for pair in text.split(","):
        name, separator, value = pair.partition("=")
        name = name.strip()
        value = value.strip()
        if not separator or not name:
            raise PerfError(f"--queue-args {text!r}: expected NAME=VALUE, got {pair!r}")
        if value in ("true", "false"):
            arguments[name] = value == "true"
        elif value.removeprefix("-").isascii() and value.removeprefix("-").isdigit():
            arguments[name] = int(value)
        else:
            arguments[name] = value
    return arguments


@dataclass
class PerfOptions:
    """The options of one run. 0 means "none" for counts of agents and "no limit" for limits.

    PerfTest reads 0 the same way.
    """

    uri: str = "amqp://guest:guest@127.0.0.1:5672/%2F"
    id: str = ""
    producers: int = 1
    consumers: int = 1
    queue: str = ""
    queue_pattern: str = ""
    queue_pattern_from: int = 1
    queue_pattern_to: int = 1
    exchange: str = ""
    exchange_type: str = "direct"
    routing_key: str = ""
    predeclared: bool = False
    auto_delete: bool = True
    queue_args: dict[str, object] = field(default_factory=dict)
    size: int = 12
    flags: list[str] = field(default_factory=list)
    priorities: int = 0
    confirm: int = 0
    rate: float = 0.0
    pmessages: int = 0
    cmessages: int = 0
    qos: int = 0
    autoack: bool = False
    multi_ack_every: int = 1
    write_each_ack: bool = False
    time: float = 0.0
    drain: float | None = None
    interval: float = 1.0
    processes: int = 1

    @property
    def persistent(self) -> bool:
        return "persistent" in self.flags

    @property
    def mandatory(self) -> bool:
        return "mandatory" in self.flags

    def drain_s(self) -> float:
        """Time (s) that consumers get after the producers have ended; 0 when the run has a time."""
        if self.drain is not None:
            return self.drain
        return 0.0 if self.time > 0 else DRAIN_S

    def queue_names(self) -> list[str]:
        """The names of the run's queues in order; one empty name means that the broker names it."""
        if not self.queue_pattern:
            return [self.queue]
        numbers = range(self.queue_pattern_from, self.queue_pattern_to + 1)
        return [self.queue_pattern % number for number in numbers]

    def validate(self) -> None:
        """Raise PerfError for the first invalid option, with its name and the allowed values."""
        parse_uri(self.uri)
        self._validate_ranges()
        for flag in self.flags:
            if flag not in FLAGS:
                raise PerfError(f"--flag {flag}: expected one of {', '.join(FLAGS)}")
        if self.producers == 0 and self.consumers == 0:
            raise PerfError("--producers 0 and --consumers 0: nothing to run")
        if self.autoack and self.multi_ack_every != 1:
            raise PerfError("--multi-ack-every: without meaning under --autoack")
        if self.autoack and self.write_each_ack:
            raise PerfError("--write-each-ack: without meaning under --autoack")
        if 0 < self.qos < self.multi_ack_every:
            raise PerfError(
                f"--multi-ack-every {self.multi_ack_every}: more than --qos {self.qos}, no ack would ever be sent"
            )
        if self.predeclared and not self.queue and not self.queue_pattern and self.consumers > 0:
            raise PerfError("--predeclared: name the queue with --queue or --queue-pattern")
        if self.queue and self.queue_pattern:
            raise PerfError("--queue and --queue-pattern exclude each other")
        if self.queue_pattern:
            try:
                self.queue_names()
            except (TypeError, ValueError):
                raise PerfError(
                    f"--queue-pattern {self.queue_pattern!r}: expected one %d in it"
                ) from None
        if self.processes > self.producers + self.consumers:
            raise PerfError(
                f"--processes {self.processes}: more than producers and consumers together"
            )

    def _validate_ranges(self) -> None:
        _check_range("--size", self.size, 0, MESSAGE_BYTES_MAX)
        _check_range("--priorities", self.priorities, 0, PRIORITIES_MAX)
        _check_range("--qos", self.qos, 0, PREFETCH_MAX)
        _check_range("--multi-ack-every", self.multi_ack_every, 1, None)
        _check_range("--processes", self.processes, 1, None)
        _check_range("--queue-pattern-to", self.queue_pattern_to, self.queue_pattern_from, None)
        _check_range("--producers", self.producers, 0, None)
        _check_range("--consumers", self.consumers, 0, None)
        _check_range("--confirm", self.confirm, 0, None)
        _check_range("--pmessages", self.pmessages, 0, None)
        _check_range("--cmessages", self.cmessages, 0, None)
        _check_range("--rate", self.rate, 0, None)
        _check_range("--time", self.time, 0, None)
        _check_range("--drain", self.drain_s(), 0, None)
        _check_range("--interval", self.interval, 0.1, None)


def _check_range(option: str, value: float, lowest: float, highest: float | None) -> None:
    if not value >= lowest:
        raise PerfError(f"{option} {value:g}: expected at least {lowest:g}")
    if highest is not None and value > highest:
        raise PerfError(f"{option} {value:g}: expected at most {highest:g}")
