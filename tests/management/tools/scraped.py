"""Paths that monitors and libraries ask the HTTP API for, and the types of what they decode.

A field has dots for values inside objects. A tool in Go cannot decode an object at all when one of
its integers comes with a fraction or as a text.
"""

from dataclasses import dataclass, field
from typing import Any

# Types in JSON, as Python has them.
NUMBER = (int, float)


@dataclass
class Scrape:
    """A path below `/api/`, and the fields that each object of the reply must have.

    `{node}`, `{queue}` and `{vhost}` in a path stand for names as a tool quotes them.
    """

    path: str
    fields: dict[str, Any] = field(default_factory=dict)


def fields(kind: Any, names: str, inside: str = "") -> dict[str, Any]:
    """The names, each with the type; `inside` an object."""
    prefix = f"{inside}." if inside else ""
    return {prefix + name: kind for name in names.split()}


def rates(names: str, inside: str = "message_stats") -> dict[str, Any]:
    """Counters by name, each with its rate per second."""
    details = " ".join(f"{name}_details.rate" for name in names.split())
    return fields(int, names, inside) | fields(NUMBER, details, inside)


_MESSAGES = fields(int, "messages messages_ready messages_unacknowledged")
_BYTES = fields(
    int,
    "message_bytes message_bytes_ready message_bytes_unacknowledged message_bytes_ram"
    " message_bytes_persistent",
)
_TOTALS = fields(int, "channels connections consumers exchanges queues", "object_totals") | fields(
    int, "messages messages_ready messages_unacknowledged", "queue_totals"
)
_NODE = fields(
    int,
    "uptime mem_used mem_limit disk_free disk_free_limit fd_used fd_total sockets_used"
    " sockets_total",
) | fields(bool, "running mem_alarm disk_free_alarm")

# The paths with which rabbitmq_exporter (kbudde) fills its metrics; `sort=` asks for no order.
EXPORTER = (
    Scrape(
        "overview?sort=",
        fields(str, "node erlang_version rabbitmq_version cluster_name")
        | _TOTALS
        | fields(
            NUMBER,
            "publish_details.rate deliver_details.rate deliver_no_ack_details.rate",
            "message_stats",
        ),
    ),
    Scrape(
        "queues?sort=",
        fields(str, "vhost name state node policy")
        | fields(bool, "durable")
        | _MESSAGES
        | _BYTES
        | fields(
            int,
            "messages_ready_ram messages_unacknowledged_ram messages_ram messages_persistent"
            " consumers memory arguments.x-max-length effective_policy_definition.max-length",
        )
        | fields(NUMBER, "consumer_utilisation")
        | rates("publish deliver deliver_no_ack get get_no_ack redeliver ack"),
    ),
    Scrape(
        "exchanges?sort=",
        fields(str, "vhost name") | fields(int, "publish_in publish_out", "message_stats"),
    ),
    Scrape("nodes?sort=", fields(str, "name") | _NODE | fields(list, "partitions")),
    Scrape("nodes/{node}/memory?sort=", fields(int, "allocated rss erlang", "memory.total")),
    Scrape(
        "connections?sort=",
        fields(str, "vhost node peer_host user state")
        | fields(int, "channels recv_oct recv_cnt send_oct send_cnt send_pend"),
    ),
    Scrape("federation-links?sort="),
    Scrape("shovels?sort="),
    Scrape("aliveness-test/{vhost}", fields(str, "status")),
)

# What KEDA's scaler decodes of a queue; it finds several queues on one page.
_KEDA = (
    _MESSAGES
    | fields(str, "name")
    | fields(NUMBER, "publish_details.rate deliver_get_details.rate", "message_stats")
)
KEDA = (
    Scrape("queues/{vhost}/{queue}", _KEDA),
    Scrape(
        "queues/{vhost}?page=1&use_regex=true&pagination=false&name=%5Eord&page_size=100", _KEDA
    ),
)

# The input plug-in `rabbitmq` of telegraf.
_TELEGRAF_RATES = rates("ack deliver deliver_get publish redeliver")
TELEGRAF = (
    Scrape("overview", _TOTALS | _TELEGRAF_RATES | fields(list, "listeners")),
    Scrape(
        "nodes",
        fields(str, "name")
        | _NODE
        | fields(int, "proc_total proc_used run_queue gc_num gc_bytes_reclaimed")
        | rates("mnesia_disk_tx_count mnesia_ram_tx_count io_read_bytes io_write_bytes", "")
        | fields(NUMBER, "io_read_avg_time io_write_avg_time"),
    ),
    Scrape("nodes/{node}/memory", fields(dict, "memory memory.total")),
    Scrape(
        "queues",
        fields(str, "name vhost node type")
        | fields(bool, "durable auto_delete")
        | _MESSAGES
        | _BYTES
        | fields(int, "memory consumers")
        | fields(NUMBER, "consumer_utilisation")
        | _TELEGRAF_RATES,
    ),
    Scrape(
        "exchanges",
        fields(str, "name vhost type")
        | fields(bool, "internal durable auto_delete")
        | rates("publish_in publish_out"),
    ),
    Scrape("federation-links"),
)

# Datadog's check `rabbitmq`, when it reads the API and not the metrics of Prometheus.
DATADOG = (
    Scrape("vhosts", fields(str, "name")),
    Scrape(
        "overview",
        fields(str, "rabbitmq_version cluster_name")
        | _TOTALS
        | rates("messages messages_ready messages_unacknowledged", "queue_totals")
        | rates("ack confirm deliver_get publish redeliver return_unroutable drop_unroutable"),
    ),
    Scrape("exchanges", fields(str, "name vhost") | rates("publish_in publish_out")),
    Scrape(
        "queues",
        fields(str, "name vhost node policy")
        | fields(NUMBER, "consumers consumer_utilisation memory message_bytes")
        | rates("messages messages_ready messages_unacknowledged", "")
        | rates("ack deliver deliver_get publish redeliver"),
    ),
    Scrape("queues/{vhost}/{queue}/bindings", fields(str, "source destination")),
    Scrape("nodes", _NODE | fields(NUMBER, "run_queue") | fields(list, "partitions")),
    Scrape("connections", fields(str, "vhost state")),
    Scrape("vhosts/{vhost}/connections", fields(str, "vhost state")),
    Scrape("aliveness-test/{vhost}", fields(str, "status")),
)

# The library rabbit-hole, with which programs in Go read the API; a port may be a text, too.
_PORT = (int, str)
_PEER = {"peer_port": _PORT, "peer_host": str}
RABBIT_HOLE = (
    Scrape(
        "overview",
        fields(
            str,
            "management_version rabbitmq_version erlang_version erlang_full_version node",
        )
        | _TOTALS
        | fields(list, "exchange_types listeners contexts"),
    ),
    Scrape(
        "nodes/{node}",
        fields(str, "name type os_pid")
        | _NODE
        | fields(list, "auth_mechanisms applications partitions cluster_links"),
    ),
    Scrape(
        "connections",
        fields(str, "name node state type host peer_host protocol user vhost")
        | fields(int, "channels timeout frame_max recv_oct send_oct connected_at")
        | fields(bool, "ssl")
        | {"port": _PORT, "peer_port": _PORT, "client_properties": dict},
    ),
    Scrape(
        "channels",
        fields(str, "name user vhost node connection_details.name")
        | fields(
            int,
            "number prefetch_count consumer_count messages_unacknowledged messages_unconfirmed"
            " messages_uncommitted acks_uncommitted",
        )
        | fields(bool, "confirm transactional")
        | {f"connection_details.{name}": kind for name, kind in _PEER.items()},
    ),
    Scrape(
        "consumers",
        fields(str, "consumer_tag queue.name queue.vhost")
        | fields(int, "prefetch_count channel_details.number")
        | fields(bool, "ack_required")
        | fields(str, "name connection_name node user", "channel_details")
        | {f"channel_details.{name}": kind for name, kind in _PEER.items()}
        | fields(dict, "arguments"),
    ),
    Scrape(
        "queues/{vhost}/{queue}",
        fields(str, "name vhost type node state")
        | fields(bool, "durable auto_delete exclusive")
        | _MESSAGES
        | _BYTES
        | fields(dict, "arguments message_stats backing_queue_status")
        | fields(list, "consumer_details"),
    ),
    Scrape(
        "vhosts",
        fields(str, "name description default_queue_type")
        | fields(bool, "tracing")
        | _MESSAGES
        | fields(dict, "cluster_state")
        | fields(list, "tags"),
    ),
    Scrape("users/", fields(str, "name password_hash hashing_algorithm") | fields(list, "tags")),
    Scrape("whoami", fields(str, "name") | fields(list, "tags")),
    Scrape("cluster-name/", fields(str, "name")),
    Scrape("definitions", fields(str, "rabbit_version") | fields(list, "users vhosts queues")),
)

TOOLS = {
    "rabbitmq_exporter": EXPORTER,
    "KEDA": KEDA,
    "telegraf": TELEGRAF,
    "Datadog": DATADOG,
    "rabbit-hole": RABBIT_HOLE,
}
# Ends of fields of Erlang's processes and files, which the API does not have.
ABSENT = tuple(
    end
    for name in (
        "proc_total", "proc_used", "run_queue", "gc_num", "gc_bytes_reclaimed",
        "mnesia_disk_tx_count", "mnesia_ram_tx_count", "io_read_bytes", "io_write_bytes",
        "io_read_avg_time", "io_write_avg_time",
    )
    for end in (name, f"{name}_details.rate")
)  # fmt: skip
