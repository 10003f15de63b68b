"""The listings of a vhost's objects and of connections and channels: `list_queues` and others."""

from typing import Any, Final, Literal

from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.queue_columns import QUEUE_COLUMNS
from warrenmq.cli.control.command import DEFAULT_TIMEOUT_S, Command, Run
from warrenmq.cli.control.exits import UsageError
from warrenmq.cli.control.formats.output import Output, Table
from warrenmq.cli.control.link import Refused
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST

GROUP: Final = "Monitoring, observability and health checks"
StreamName = Literal["queues", "exchanges", "bindings", "consumers", "connections", "channels"]

# Columns that RabbitMQ has, then warren's own.
_QUEUE_COLUMN_NAMES: Final = tuple(
    sorted(QUEUE_COLUMNS, key=lambda name: (QUEUE_COLUMNS[name].is_own, name))
)
EXCHANGE_COLUMNS: Final = (
    "arguments", "auto_delete", "durable", "internal", "name", "policy", "type",
)  # fmt: skip
BINDING_COLUMNS: Final = (
    "source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments",
)  # fmt: skip
CONSUMER_COLUMNS: Final = (
    "queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active",
    "arguments", "activity_status", "messages_unacknowledged", "oldest_unacknowledged_seconds",
)  # fmt: skip
# What RabbitMQ shows when nothing is named.
_CONSUMER_DEFAULT: Final = CONSUMER_COLUMNS[:7]
CONNECTION_COLUMNS: Final = (
    "auth_mechanism", "channel_max", "channels", "client_properties", "connected_at", "frame_max",
    "host", "name", "peer_cert_issuer", "peer_cert_subject", "peer_cert_validity", "peer_host",
    "peer_port", "pid", "port", "protocol", "recv_cnt", "recv_oct", "send_cnt", "send_oct",
    "send_pend", "ssl", "ssl_cipher", "ssl_hash", "ssl_key_exchange", "ssl_protocol", "state",
    "timeout", "user", "user_provided_name", "vhost",
)  # fmt: skip
CHANNEL_COLUMNS: Final = (
    "acks_uncommitted", "confirm", "connection", "consumer_count", "global_prefetch_count",
    "messages_unacknowledged", "messages_uncommitted", "messages_unconfirmed", "name", "number",
    "oldest_unacknowledged_seconds", "pid", "prefetch_count", "transactional", "user", "vhost",
)  # fmt: skip
UNRESPONSIVE_COLUMNS: Final = (
    "arguments", "auto_delete", "durable", "name", "pid", "recoverable_slaves",
)  # fmt: skip


def named_columns(arguments: list[str], default: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that the arguments name, which commas and blanks separate, each once."""
    names = [name for word in arguments for name in word.replace(",", " ").split()]
    return tuple(dict.fromkeys(names)) or default


def check_columns(run: Run, columns: tuple[str, ...]) -> None:
    """Raise UsageError when an argument names a column that is not in `columns`."""
    unknown = [name for name in named_columns(run.arguments, ()) if name not in columns]
    if unknown:
        raise UsageError(f"Info key(s) {','.join(unknown)} are not supported")


def _which(run: Run) -> Literal["all", "local", "online", "offline"]:
    """The objects that the flags choose; both --online and --offline choose all."""
    if run.flag("local"):
        return "local"
    if run.flag("online") == run.flag("offline"):
        return "all"
    return "online" if run.flag("online") else "offline"


def _failures(found: Rows) -> list[str]:
    return [f"node {node} has not answered: its rows are missing" for node in found.missing]


def _shown(name: str, value: Any) -> Any:
    """A value of a row as RabbitMQ has it: the state of a queue that is synchronised is a tuple."""
    return tuple(value) if name == "state" and isinstance(value, list) else value


def _stream(
    what: StreamName,
    summary: str,
    columns: tuple[str, ...],
    default: tuple[str, ...],
    banner: str,
    is_of_vhost: bool = True,
    options: tuple[Option, ...] = (),
) -> Command:
    """The command `list_WHAT`, whose banner may name {vhost} and {timeout}."""

    def listed(run: Run) -> Output:
        chosen = named_columns(run.arguments, default)
        vhost = run.vhost if is_of_vhost else ""
        request = List(what=what, columns=list(chosen), vhost=vhost, which=_which(run))
        try:
            found = run.ask(request, Rows)
        except Refused as error:
            # RabbitMQ lists nothing for a vhost that does not exist.
            if error.refusal != NO_SUCH_VHOST:
                raise
            found = Rows([])
        rows = [
            [_shown(name, value) for name, value in zip(chosen, row, strict=True)]
            for row in found.rows
        ]
        return Table(chosen, rows, is_stream=True, failures=_failures(found))

    def text(run: Run) -> str:
        seconds = DEFAULT_TIMEOUT_S if run.timeout_s is None else run.timeout_s
        return banner.format(vhost=run.vhost, timeout=f"{seconds:.1f}")

    return Command(
        name=f"list_{what}",
        group=GROUP,
        summary=summary,
        run=listed,
        arguments="[<column> ...]",
        count=(0, None),
        options=options,
        takes_vhost=is_of_vhost,
        columns=columns,
        is_table=True,
        banner=text,
        check=lambda run: check_columns(run, columns),
        takes_timeout=True,
    )


def _unresponsive(run: Run) -> Output:
    columns = named_columns(run.arguments, ("name",))
    # All queues of a node are in one loop: one that answers answers for all.
    request = List(what="queues", columns=["name"], vhost=run.vhost, which=_which(run))
    return Table(columns, [], is_stream=True, failures=_failures(run.ask(request, Rows)))


COMMANDS: Final = (
    _stream(
        "queues",
        "Lists queues and what is in them",
        _QUEUE_COLUMN_NAMES,
        ("name", "messages"),
        "Timeout: {timeout} seconds ...\nListing queues for vhost {vhost} ...",
        options=(
            Option("online", "flag", help="only queues on nodes that run"),
            Option("offline", "flag", help="only queues on nodes that do not run"),
            Option("local", "flag", help="only queues of this node"),
        ),
    ),
    _stream(
        "exchanges",
        "Lists exchanges",
        EXCHANGE_COLUMNS,
        ("name", "type"),
        "Listing exchanges for vhost {vhost} ...",
    ),
    _stream(
        "bindings",
        "Lists bindings",
        BINDING_COLUMNS,
        BINDING_COLUMNS,
        "Listing bindings for vhost {vhost}...",
    ),
    _stream(
        "consumers",
        "Lists consumers of queues",
        CONSUMER_COLUMNS,
        _CONSUMER_DEFAULT,
        "Listing consumers in vhost {vhost} ...",
    ),
    _stream(
        "connections",
        "Lists connections of AMQP clients",
        CONNECTION_COLUMNS,
        ("user", "peer_host", "peer_port", "state"),
        "Listing connections ...",
        is_of_vhost=False,
    ),
    _stream(
        "channels",
        "Lists open channels",
        CHANNEL_COLUMNS,
        ("pid", "user", "consumer_count", "messages_unacknowledged"),
        "Listing channels ...",
        is_of_vhost=False,
    ),
    Command(
        name="list_unresponsive_queues",
        group=GROUP,
        summary="Lists queues that do not answer in time",
        run=_unresponsive,
        arguments="[<column> ...]",
        count=(0, None),
        options=(
            Option("local", "flag", help="only queues of this node"),
            Option(
                "queue-timeout", "integer", help="how long a queue may take", metavar="milliseconds"
            ),
        ),
        takes_vhost=True,
        columns=UNRESPONSIVE_COLUMNS,
        is_table=True,
        banner=lambda run: f"Listing unresponsive queues for vhost {run.vhost} ...",
        check=lambda run: check_columns(run, UNRESPONSIVE_COLUMNS),
        takes_timeout=True,
    ),
)
