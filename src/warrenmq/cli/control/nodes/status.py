"""Reports of the node: `status`, `environment`, `memory_breakdown`."""

from typing import Any, Final

from warrenmq.admin.protocol.cluster import MemberDescription
from warrenmq.admin.protocol.configuration import (
    Configuration,
    ConfigurationKey,
    DescribeConfiguration,
)
from warrenmq.admin.protocol.control import ControlStatus, DescribeControl
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import UsageError
from warrenmq.cli.control.formats.output import Output, Table, Text
from warrenmq.cli.control.formats.values import json_text, term_text
from warrenmq.cli.control.objects import listings
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION

_SETTINGS: Final = "Configuration and environment"
_UNITS: Final = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
_UNIT: Final = Option("unit", help="bytes, mb or gb (default: gb)")
_SOURCE_COLUMNS: Final = (
    "key", "value", "source", "change_takes_effect", "pending", "pending_source", "waits_for",
)  # fmt: skip
PURPOSES: Final = {
    "amqp": "AMQP 0-9-1",
    "amqp/ssl": "AMQP 0-9-1 over TLS",
    "clustering": "inter-node communication",
}


def node_status(run: Run) -> ControlStatus:
    """The state of the node's process."""
    return run.ask(DescribeControl(), ControlStatus)


def alarm_lines(status: ControlStatus | MemberDescription) -> list[str]:
    """The alarms in effect, as RabbitMQ names them."""
    words = {"memory": "Memory", "disk": "Free disk space"}
    return [f"{words[alarm]} alarm on node {status.node}" for alarm in status.alarms]


def listener_rows(status: ControlStatus | MemberDescription) -> list[dict[str, Any]]:
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


def section(title: str, *lines: str) -> list[str]:
    """A part of a report under its title."""
    return [title, "", *lines, ""]


def full_status(run: Run) -> Output:
    """Everything about the node's process."""
    status = node_status(run)
    lines = "\n".join(_status_lines(status, run.text("unit", "gb")))
    data = _status_data(status)
    return Text(lines, data, report=data)


def _status_lines(status: ControlStatus, unit: str) -> list[str]:
    limit = _size(status.memory_limit_bytes, unit)
    share = status.memory_limit_share
    setting = limit if share is None else f"{share} of available memory"
    memory = [
        f"{name}: {_size(size, unit)} ({_percentage(status, size)} %)"
        for name, size in _memory(status).items()
    ]
    return [
        *section(
            "Runtime",
            f"OS PID: {status.pid}",
            f"OS: {status.os}",
            f"Uptime (seconds): {status.uptime_ms // 1000}",
            f"Is under maintenance?: {term_text(status.is_draining)}",
            f"RabbitMQ version: {RABBITMQ_VERSION}",
            f"warren version: {status.version}",
            f"Node name: {status.node}",
            f"Python version: {status.python}",
        ),
        *section("Data directory", f"Node data directory: {status.data_directory}"),
        *section("Config files", *[f" * {path}" for path in status.config_files]),
        *section("Log file(s)", *[f" * {path}" for path in status.log_files]),
        *section("Alarms", *(alarm_lines(status) or ["(none)"])),
        *section(
            "Memory",
            f"Total memory used: {_size(status.memory_used_bytes, unit)}",
            "Calculation strategy: rss",
            f"Memory high watermark setting: {setting}, computed to: {limit}",
            "",
            *memory,
        ),
        *section(
            "File Descriptors",
            f"Total: {status.open_files}, limit: {status.open_files_max}",
            f"Sockets: {status.sockets}",
        ),
        *section(
            "Free Disk Space",
            f"Low free disk space watermark: {_size(status.disk_limit_bytes, unit)}",
            f"Free disk space: {_size(status.disk_free_bytes, unit)}",
        ),
        *section(
            "Totals",
            f"Connection count: {status.connections}",
            f"Queue count: {status.queues}",
            f"Virtual host count: {status.vhosts}",
        ),
        *section("Listeners", *[listener_line(row) for row in listener_rows(status)])[:-1],
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
        "is_under_maintenance": status.is_draining,
        "listeners": listener_rows(status),
        "log_files": status.log_files,
        "memory": {**_memory(status), "strategy": "rss", "total": {"rss": used}},
        "os": status.os,
        "pid": status.pid,
        "product_name": "warren",
        "product_version": status.version,
        "python_version": status.python,
        "rabbitmq_version": RABBITMQ_VERSION,
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


def environment(run: Run) -> Output:
    """The settings in force; with --sources a table that says where they come from."""
    if run.flag("sources"):
        told = run.ask(DescribeConfiguration(), Configuration)
        return Table(_SOURCE_COLUMNS, [_source_row(each) for each in told.keys])
    settings = node_status(run).environment
    lines = [f"{name} = {_setting_text(value)}" for name, value in sorted(settings.items())]
    return Text("\n".join(lines), settings, report=settings)


def _source_row(key: ConfigurationKey) -> list[str]:
    pending = key.pending
    waits = ["", "", ""] if pending is None else [pending.value, pending.source, pending.by]
    return [key.key, key.value, key.source, key.effect, *waits]


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


COMMANDS: Final = (
    Command(
        "environment", _SETTINGS, "Shows the settings in force", environment, needs="node",
        options=(Option("sources", "flag", help="with sources, and what waits for a restart"),),
        banner=lambda run: f"Application environment of node {run.node} ...",
    ),
    Command(
        "memory_breakdown", listings.GROUP, "Shows what the memory is used for", _memory_breakdown,
        options=(_UNIT,), takes_timeout=True, check=_check_unit,
        banner=lambda run: f"Reporting memory breakdown on node {run.node}...",
    ),
    Command(
        "status", listings.GROUP, "Shows the state of the node", full_status, options=(_UNIT,),
        takes_timeout=True, check=_check_unit,
        banner=lambda run: f"Status of node {run.node} ...",
    ),
)  # fmt: skip
