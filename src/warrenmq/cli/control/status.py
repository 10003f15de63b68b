"""Reports of the node: `status`, `cluster_status`, `environment`, `memory_breakdown`, `report`."""

from typing import Any, Final

from warrenmq.admin.control_protocol import ControlStatus, DescribeControl, List, Rows
from warrenmq.cli.control import listings, policies, users
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import UsageError
from warrenmq.cli.control.output import Output, Style, Table, Text, table
from warrenmq.cli.control.parsing import Option
from warrenmq.cli.control.values import json_text, term_text

_CLUSTER: Final = "Cluster"
_SETTINGS: Final = "Configuration and environment"
_UNITS: Final = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
_UNIT: Final = Option("unit", help="bytes, mb or gb (default: gb)")
PURPOSES: Final = {"amqp": "AMQP 0-9-1", "amqp/ssl": "AMQP 0-9-1 over TLS"}
# RabbitMQ's names of features, and whether this node has them.
FEATURE_FLAGS: Final = {
    "classic_mirrored_queue_version": False,
    "implicit_default_bindings": True,
    "maintenance_mode_status": False,
    "quorum_queue": False,
    "stream_queue": False,
    "user_limits": True,
    "virtual_host_metadata": True,
}
FLAG_COLUMNS: Final = ("desc", "doc_url", "name", "provided_by", "stability", "state")


def node_status(run: Run) -> ControlStatus:
    """The state of the node's process."""
    return run.ask(DescribeControl(), ControlStatus)


def alarm_lines(status: ControlStatus) -> list[str]:
    """The alarms in effect, as RabbitMQ names them."""
    words = {"memory": "Memory", "disk": "Free disk space"}
    return [f"{words[alarm]} alarm on node {status.node}" for alarm in status.alarms]


def listener_rows(status: ControlStatus) -> list[dict[str, Any]]:
    """The listeners as JSON shows them."""
    return [
        {
            "interface": each.interface or "[::]",
            "node": status.node,
            "port": each.port,
            "protocol": each.protocol,
            "purpose": PURPOSES.get(each.protocol, each.protocol),
        }
        for each in status.listeners
    ]


def listener_line(row: dict[str, Any]) -> str:
    """One listener as a line of text."""
    return (
        f"Interface: {row['interface']}, port: {row['port']}, protocol: {row['protocol']}, "
        f"purpose: {row['purpose']}"
    )


def _check_unit(run: Run) -> None:
    unit = run.text("unit", "gb")
    if unit not in _UNITS:
        known = ", ".join(_UNITS)
        raise UsageError(f"\"unit '{unit}' is not supported. Please use one of: {known}\"")


def _size(size_bytes: int | None, unit: str) -> str:
    if size_bytes is None:
        return "unknown"
    return f"{round(size_bytes / _UNITS[unit], 4)} {unit}"


def _memory(status: ControlStatus) -> dict[str, int]:
    """Memory by use, the largest first; `other` is everything that is not counted."""
    used = status.memory_used_bytes or 0
    parts = dict(status.memory)
    parts["other"] = max(0, used - sum(parts.values()))
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _percentage(status: ControlStatus, size_bytes: int) -> float:
    used = status.memory_used_bytes or 0
    return round(100 * size_bytes / used, 2) if used else 0.0


def _section(title: str, *lines: str) -> list[str]:
    return [title, "", *lines, ""]


def _status(run: Run) -> Output:
    status = node_status(run)
    lines = "\n".join(_status_lines(status, run.text("unit", "gb")))
    data = _status_data(status)
    return Text(lines, data, report=data)


def _status_lines(status: ControlStatus, unit: str) -> list[str]:
    limit = (
        f"{status.memory_limit_share} of available memory, computed to: "
        if status.memory_limit_share is not None
        else ""
    )
    memory = [
        f"{name}: {_size(size, unit)} ({_percentage(status, size)} %)"
        for name, size in _memory(status).items()
    ]
    return [
        *_section(
            "Runtime",
            f"OS PID: {status.pid}",
            f"OS: {status.os}",
            f"Uptime (seconds): {status.uptime_ms // 1000}",
            f"Is under maintenance?: {term_text(not status.is_listening)}",
            f"warren version: {status.version}",
            f"Node name: {status.node}",
            f"Python version: {status.python}",
        ),
        *_section("Data directory", f"Node data directory: {status.data_directory}"),
        *_section("Config files", *[f" * {path}" for path in status.config_files]),
        *_section("Log file(s)", *[f" * {path}" for path in status.log_files]),
        *_section("Alarms", *(alarm_lines(status) or ["(none)"])),
        *_section(
            "Memory",
            f"Total memory used: {_size(status.memory_used_bytes, unit)}",
            "Calculation strategy: rss",
            f"Memory high watermark setting: {limit}{_size(status.memory_limit_bytes, unit)}",
            "",
            *memory,
        ),
        *_section(
            "File Descriptors",
            f"Total: {status.open_files}, limit: {status.open_files_max}",
            f"Sockets: {status.sockets}",
        ),
        *_section(
            "Free Disk Space",
            f"Low free disk space watermark: {_size(status.disk_limit_bytes, unit)}",
            f"Free disk space: {_size(status.disk_free_bytes, unit)}",
        ),
        *_section(
            "Totals",
            f"Connection count: {status.connections}",
            f"Queue count: {status.queues}",
            f"Virtual host count: {status.vhosts}",
        ),
        *_section("Listeners", *[listener_line(row) for row in listener_rows(status)])[:-1],
    ]


def _status_data(status: ControlStatus) -> dict[str, Any]:
    share = status.memory_limit_share
    setting = {"absolute": status.memory_limit_bytes} if share is None else {"relative": share}
    used = status.memory_used_bytes
    return {
        "active_plugins": [],
        "alarms": alarm_lines(status),
        "config_files": status.config_files,
        "data_directory": status.data_directory,
        "disk_free": status.disk_free_bytes,
        "disk_free_limit": status.disk_limit_bytes,
        "file_descriptors": {
            "sockets_used": status.sockets,
            "total_limit": status.open_files_max,
            "total_used": status.open_files,
        },
        "is_under_maintenance": not status.is_listening,
        "listeners": listener_rows(status),
        "log_files": status.log_files,
        "memory": {**_memory(status), "strategy": "rss", "total": {"rss": used}},
        "os": status.os,
        "pid": status.pid,
        "product_name": "warren",
        "product_version": status.version,
        "python_version": status.python,
        "rabbitmq_version": status.version,
        "totals": {
            "virtual_host_count": status.vhosts,
            "connection_count": status.connections,
            "queue_count": status.queues,
        },
        "uptime": status.uptime_ms // 1000,
        "vm_memory_calculation_strategy": "rss",
        "vm_memory_high_watermark_limit": status.memory_limit_bytes,
        "vm_memory_high_watermark_setting": setting,
    }


def _cluster_name(run: Run, status: ControlStatus) -> str:
    found = run.ask(List(what="global_parameters", columns=["name", "value"]), Rows).rows
    import json

    names = {name: json.loads(value) for name, value in found}
    return str(names.get("cluster_name", status.node))


def _cluster_status(run: Run) -> Output:
    status = node_status(run)
    node, name = status.node, _cluster_name(run, status)
    maintenance = "not under maintenance" if status.is_listening else "under maintenance"
    rows = listener_rows(status)
    states = {flag: _flag_state(is_on) for flag, is_on in FEATURE_FLAGS.items()}
    lines = [
        *_section("Basics", f"Cluster name: {name}"),
        *_section("Disk Nodes", node),
        *_section("Running Nodes", node),
        *_section("Versions", f"{node}: warren {status.version} on Python {status.python}"),
        *_section("Maintenance status", f"Node: {node}, status: {maintenance}"),
        *_section("Alarms", *(alarm_lines(status) or ["(none)"])),
        *_section("Network Partitions", "(none)"),
        *_section("Listeners", *[f"Node: {node}, i{listener_line(row)[1:]}" for row in rows]),
        *_section(
            "Feature flags", *[f"Flag: {flag}, state: {state}" for flag, state in states.items()]
        )[:-1],
    ]
    data = {
        "alarms": alarm_lines(status),
        "cluster_name": name,
        "disk_nodes": [node],
        "feature_flags": [{"name": flag, "state": state} for flag, state in states.items()],
        "listeners": {node: rows},
        "maintenance_status": {node: maintenance},
        "partitions": {},
        "ram_nodes": [],
        "running_nodes": [node],
        "versions": {
            node: {
                "python_version": status.python,
                "rabbitmq_name": "warren",
                "rabbitmq_version": status.version,
            }
        },
    }
    return Text("\n".join(lines), data, report=data)


def _environment(run: Run) -> Output:
    settings = node_status(run).environment
    lines = [f"{name} = {_setting_text(value)}" for name, value in sorted(settings.items())]
    return Text("\n".join(lines), settings, report=settings)


def _setting_text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _memory_breakdown(run: Run) -> Output:
    status = node_status(run)
    unit = run.text("unit", "gb")
    memory = _memory(status)
    lines = [
        f"{name}: {_size(size, unit)} ({_percentage(status, size)}%)"
        for name, size in memory.items()
    ]
    data = {
        name: {"bytes": size, "percentage": _percentage(status, size)}
        for name, size in memory.items()
    }
    return Text("\n".join(lines), data, report=data)


def _flag_state(is_on: bool) -> str:
    return "enabled" if is_on else "unavailable"


def _feature_flags(run: Run) -> Output:
    columns = listings.named_columns(run.arguments, ("name", "state"))
    rows = [
        {"name": name, "state": _flag_state(is_on), "stability": "stable", "provided_by": "warren"}
        for name, is_on in FEATURE_FLAGS.items()
    ]
    return Table(columns, [[row.get(name, "") for name in columns] for row in rows])


def _report(run: Run) -> Output:
    """Everything that somebody who helps wants to see, in one text."""
    reports = [("Status of node", _status(run)), ("Cluster status of node", _cluster_status(run))]
    reports.append(("Application environment of node", _environment(run)))
    parts = [f"{title} {run.node} ...\n{_text(output)}" for title, output in reports]
    commands = (*listings.COMMANDS, *users.COMMANDS, *policies.COMMANDS)
    names = (
        "list_queues", "list_exchanges", "list_bindings", "list_consumers", "list_connections",
        "list_channels", "list_users", "list_policies", "list_operator_policies",
    )  # fmt: skip
    for command in commands:
        if command.name in names and command.banner is not None:
            parts.append(f"{command.banner(run)}\n{_text(command.run(run))}")
    return Text("\n".join(parts).rstrip("\n"))


def _text(output: Output) -> str:
    return table(output, Style())


COMMANDS: Final = (
    Command(
        "cluster_status", _CLUSTER, "Shows the nodes of the cluster: this one", _cluster_status,
        takes_timeout=True, banner=lambda run: f"Cluster status of node {run.node} ...",
    ),
    Command(
        "environment", _SETTINGS, "Shows the settings in force", _environment, needs="node",
        banner=lambda run: f"Application environment of node {run.node} ...",
    ),
    Command(
        "list_feature_flags", "Feature flags", "Lists which of RabbitMQ's features the node has",
        _feature_flags, "[<column> ...]", (0, None), columns=FLAG_COLUMNS, is_table=True,
        takes_timeout=True, needs="nothing", banner=lambda _run: "Listing feature flags ...",
        check=lambda run: listings.check_columns(run, FLAG_COLUMNS),
    ),
    Command(
        "memory_breakdown", listings.GROUP, "Shows what the memory is used for", _memory_breakdown,
        options=(_UNIT,), takes_timeout=True, check=_check_unit,
        banner=lambda run: f"Reporting memory breakdown on node {run.node}...",
    ),
    Command(
        "report", listings.GROUP, "Shows all of this and all listings of a vhost", _report,
        takes_vhost=True, banner=lambda run: f"Reporting server status of node {run.node} ...",
    ),
    Command(
        "status", listings.GROUP, "Shows the state of the node", _status, options=(_UNIT,),
        takes_timeout=True, check=_check_unit,
        banner=lambda run: f"Status of node {run.node} ...",
    ),
)  # fmt: skip
