"""Health checks, as rabbitmq-diagnostics has them: they end with 69 when something is wrong."""

import socket
from typing import Final

from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.watching import Certificates, DescribeCertificates
from warrenmq.cli.control.command import DEFAULT_TIMEOUT_S, Command, Run
from warrenmq.cli.control.exits import CommandError, UsageError, bad_argument
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.link import NoNodeError
from warrenmq.cli.control.nodes.cluster import describe_cluster
from warrenmq.cli.control.nodes.status import alarm_lines, listener_line, listener_rows, node_status
from warrenmq.cli.control.objects.listings import GROUP
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION

_CONNECT_TIMEOUT_S: Final = 10.0
_HEALTH_TIMEOUT_S: Final = 70
_UNITS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}


def _timeout_ms(run: Run) -> int:
    return 1000 * (DEFAULT_TIMEOUT_S if run.timeout_s is None else run.timeout_s)


def _ping(run: Run) -> Output:
    try:
        run.link.node_name  # noqa: B018  # connects
    except NoNodeError as error:
        node = run.link.expected_name
        text = f"Failed to connect and authenticate to {node} in {_timeout_ms(run)} ms"
        raise CommandError(f"Error:\n{text}", error.code) from None
    return Text("Ping succeeded")


def _ping_banner(run: Run) -> str:
    return (
        f"Will ping {run.link.expected_name}. This only checks if the OS process is running and "
        f"registered with epmd. Timeout: {_timeout_ms(run)} ms."
    )


# -- running ---------------------------------------------------------------------------------------


def _running_text(run: Run) -> tuple[bool, str]:
    status = node_status(run)
    if status.is_running:
        return True, f"RabbitMQ on node {status.node} is fully booted and running"
    return False, (
        f"RabbitMQ on node {status.node} is not running or has not fully booted yet "
        "(check with is_booting)"
    )


def _check_running(run: Run) -> Output:
    is_running, text = _running_text(run)
    if not is_running:
        raise CommandError(f"Error:\n{text}")
    return Text(text)


def _is_running(run: Run) -> Output:
    is_running, text = _running_text(run)
    return Text(text, {"message": text, "result": is_running})


def _is_booting(run: Run) -> Output:
    text = (
        f"RabbitMQ on node {run.node} is fully booted (check with is_running), "
        "stopped or has not started booting yet"
    )
    return Text(text, {"message": text, "result": False})


def _server_version(run: Run) -> Output:
    """The version of RabbitMQ whose behaviour the node has; `status` shows its own as well."""
    node_status(run)
    return Text(RABBITMQ_VERSION, {"result": "ok", "value": RABBITMQ_VERSION})


def _check_vhosts(run: Run) -> Output:
    run.ask(List(what="vhosts", columns=["name"]), Rows)
    # A node whose vhost does not start does not start at all.
    return Text(f"Node {run.node} reported all vhosts as running", {"result": "ok"})


# -- alarms ----------------------------------------------------------------------------------------


def _alarm_lines_of_all(run: Run) -> tuple[str, list[str], list[str]]:
    """The node, the alarms on it, and those on other nodes of its cluster."""
    status = describe_cluster(run)
    local: list[str] = []
    others: list[str] = []
    for node in status.nodes:
        (local if node.node == status.node else others).extend(alarm_lines(node))
    return status.node, local, others


def _alarms(run: Run) -> Output:
    node, local, others = _alarm_lines_of_all(run)
    if not local and not others:
        data = {"alarms": [], "node": node, "result": "ok"}
        return Text(f"Node {node} reported no alarms, local or clusterwide", data)
    message = f"Node {node} reported alarms"
    data = {"global": others, "local": local, "message": message, "result": "ok"}
    return Text("\n".join(local + others), data)


def _check_local_alarms(run: Run) -> Output:
    status = node_status(run)
    lines = alarm_lines(status)
    if lines:
        raise CommandError("\n".join(["Error:", *lines]))
    text = f"Node {status.node} reported no local alarms"
    return Text(text, {"result": "ok"}, hidden_by="silent")


def _check_alarms(run: Run) -> Output:
    node, local, others = _alarm_lines_of_all(run)
    if local or others:
        raise CommandError("\n".join(local + others))
    text = f"Node {node} reported no alarms, local or clusterwide"
    return Text(text, {"result": "ok"}, hidden_by="silent")


def _health_check(run: Run) -> Output:
    """The checks that RabbitMQ's oldest health check makes: the broker runs, no alarm is on."""
    _check_running(run)
    lines = alarm_lines(node_status(run))
    if lines:
        raise CommandError("\n".join(["Error:", *lines]))
    return Text("Health check passed")


def _health_check_banner(run: Run) -> str:
    seconds = _HEALTH_TIMEOUT_S if run.timeout_s is None else run.timeout_s
    return f"Timeout: {seconds} seconds ...\nChecking health of node {run.node} ..."


def _check_metadata_store(run: Run) -> Output:
    """Fail while etcd does not answer the node, or has an alarm; a lone node needs none."""
    status = describe_cluster(run)
    etcd = status.etcd
    if etcd is None:
        text = f"Node {status.node} runs alone and needs no etcd, the check does not apply"
        return Text(text, {"result": "ok"})
    if etcd.failure:
        raise CommandError(f"Error:\netcd does not answer node {status.node}: {etcd.failure}")
    if etcd.alarms:
        raise CommandError(f"Error:\netcd has alarms: {', '.join(etcd.alarms)}")
    text = f"etcd {etcd.version} answers node {status.node}"
    return Text(text, {"result": "ok"})


# -- listeners -------------------------------------------------------------------------------------


# The order of what Erlang terms say of a listener.
_IN_ORDER: Final = ("node", "protocol", "interface", "port", "purpose")


def _listeners(run: Run) -> Output:
    rows = listener_rows(node_status(run))
    data = {"listeners": rows, "node": run.node, "result": "ok"}
    report = [{key: row[key] for key in _IN_ORDER} for row in rows]
    return Text("\n".join([listener_line(row) for row in rows]), data, report=report)


def _check_port_argument(run: Run) -> None:
    if not run[0].isdecimal() or int(run[0]) < 1:
        raise bad_argument("Argument must be a positive integer")


def _check_port(run: Run) -> Output:
    ports = [each.port for each in node_status(run).listeners]
    if int(run[0]) not in ports:
        shown = ", ".join(map(str, ports))
        raise CommandError(
            f"No listener for port {run[0]} is active on node {run.node}. "
            f"Found listeners that use the following ports: {shown}"
        )
    text = f"A listener for port {run[0]} is running on node {run.node}."
    return Text(text, {"result": "ok", "port": int(run[0])})


# Other names of protocols, as RabbitMQ takes them.
_PROTOCOLS: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqps": "amqp/ssl",
}


def _check_protocol(run: Run) -> Output:
    protocol = _PROTOCOLS.get(run[0].lower(), run[0].lower())
    found = sorted({each.protocol for each in node_status(run).listeners})
    if protocol not in found:
        raise CommandError(
            f"Error:\nNo listener for protocol {protocol} is active on node {run.node}. "
            f"Found listeners for the following protocols: {', '.join(found)}"
        )
    text = f"A listener for protocol {protocol} is running on node {run.node}."
    return Text(text, {"node": run.node, "protocol": protocol, "result": "ok"})


def _check_connectivity(run: Run) -> Output:
    failed = []
    ports = []
    for row in listener_rows(node_status(run)):
        host = "127.0.0.1" if row["interface"] in ("[::]", "0.0.0.0", "::") else row["interface"]
        ports.append(str(row["port"]))
        try:
            socket.create_connection((host, row["port"]), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failed.append(f"{listener_line(row)}: {error}")
    if failed:
        text = f"Connection attempts failed on node {run.node}:"
        raise CommandError("Error:\n" + "\n".join([text, *failed]))
    text = f"Successfully connected to ports {', '.join(ports)} on node {run.node}."
    return Text(text, {"result": "ok"})


# -- certificates ----------------------------------------------------------------------------------


def _check_period(run: Run) -> None:
    unit = run.text("unit", "weeks")
    if unit not in _UNITS:
        known = ", ".join(_UNITS)
        raise UsageError(f"\"unit '{unit}' is not supported. Please use one of: {known}\"")


def _check_expiration(run: Run) -> Output:
    from warrenmq.admin.client.certificates import expiring

    unit = run.text("unit", "weeks")
    within = run.number("within", 4)
    listeners = run.ask(DescribeCertificates(), Certificates).listeners
    found = expiring(listeners, within * _UNITS[unit])
    period = f"{within} {unit.removesuffix('s') if within == 1 else unit}"
    if found:
        raise CommandError(
            "\n".join([f"Error:\nCertificates that expire within {period}:", *found])
        )
    return Text(f"No certificates are expiring within {period}.", {"result": "ok"})


COMMANDS: Final = (
    Command(
        "ping", GROUP, "Checks that the node answers", _ping, needs="nothing",
        takes_timeout=True, banner=_ping_banner,
    ),
    Command(
        "alarms", GROUP, "Lists alarms in effect", _alarms, takes_timeout=True,
        banner=lambda run: f"Asking node {run.node} to report any known resource alarms ...",
    ),
    Command(
        "check_alarms", GROUP, "Fails while an alarm is in effect",
        _check_alarms, takes_timeout=True,
        banner=lambda run: f"Asking node {run.node} to report any local resource alarms ...",
    ),
    Command(
        "check_local_alarms", GROUP, "Fails while an alarm is in effect on this node",
        _check_local_alarms, takes_timeout=True,
        banner=lambda run: f"Asking node {run.node} to report any local resource alarms ...",
    ),
    Command(
        "check_certificate_expiration", GROUP, "Fails when a certificate expires soon",
        _check_expiration,
        options=(
            Option("within", "integer", help="how soon (default: 4)", metavar="period"),
            Option("unit", help="days, weeks, months or years (default: weeks)"),
        ),
        banner=lambda run: f"Checking certificate expiration on node {run.node} ...",
        check=_check_period,
    ),
    Command(
        "check_metadata_store", GROUP, "Fails while etcd does not answer the node, or has an alarm",
        _check_metadata_store, takes_timeout=True,
        banner=lambda run: f"Checking if etcd answers node {run.node} ...",
    ),
    Command(
        "check_port_connectivity", GROUP, "Fails when a listener cannot be connected to",
        _check_connectivity, takes_timeout=True,
        banner=lambda run: (
            f"Testing TCP connections to all active listeners on node {run.node} ..."
        ),
    ),
    Command(
        "check_port_listener", GROUP, "Fails without a listener on a port", _check_port,
        "<port>", (1, 1), takes_timeout=True, check=_check_port_argument,
        banner=lambda run: (
            f"Asking node {run.node} if there's an active listener on port {run[0]} ..."
        ),
    ),
    Command(
        "check_protocol_listener", GROUP, "Fails without a listener for a protocol",
        _check_protocol, "<protocol>", (1, 1), takes_timeout=True,
        banner=lambda run: (
            f"Asking node {run.node} if there's an active listener for protocol {run[0]} ..."
        ),
    ),
    Command(
        "check_running", GROUP, "Fails unless the broker runs", _check_running,
        needs="node", takes_timeout=True,
        banner=lambda run: f"Checking if RabbitMQ is running on node {run.node} ...",
    ),
    Command(
        "check_virtual_hosts", GROUP, "Fails when a vhost does not run", _check_vhosts,
        takes_timeout=True,
        banner=lambda run: f"Checking if all vhosts are running on node {run.node} ...",
    ),
    Command(
        "is_booting", GROUP, "Tells whether the broker starts", _is_booting, needs="node",
        takes_timeout=True, banner=lambda run: f"Asking node {run.node} for its boot status ...",
    ),
    Command(
        "is_running", GROUP, "Tells whether the broker runs", _is_running, needs="node",
        takes_timeout=True, banner=lambda run: f"Asking node {run.node} for its status ...",
    ),
    Command(
        "listeners", GROUP, "Lists listeners", _listeners, takes_timeout=True,
        banner=lambda run: f"Asking node {run.node} to report its protocol listeners ...",
    ),
    Command(
        "node_health_check", GROUP, "Fails unless the broker runs without an alarm", _health_check,
        needs="node", takes_timeout=True, banner=_health_check_banner,
    ),
    Command(
        "server_version", GROUP, "Shows the version of RabbitMQ whose behaviour the node has", _server_version,
        takes_timeout=True,
        banner=lambda run: f"Asking node {run.node} for its RabbitMQ version...",
    ),
)  # fmt: skip
