"""The node's configuration: rabbitmq.conf's keys, the environment, `--set`, the command's flags.

The file has rabbitmq.conf's format and keys. Precedence, weakest first: the defaults of `Config`,
the file, the environment, `--set`, the flags. Every source goes through `KEYS`, so one place parses
and checks a value, wherever it came from. Only keys that have an effect are accepted. A key that
warren does not know, or knows but cannot honour yet, stops the start with one line that names the
file and the line, because a setting that is silently ignored is found out on the worst day.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.settings import AMQP_PORT, Config, short_host_name

# RabbitMQ's ceiling for max_message_size: a body must fit in one Erlang binary without hurting the
# collector.
MAX_MESSAGE_SIZE_LIMIT: Final = 536870912
# Smallest frame_max that a peer must accept (AMQP 0-9-1 section 4.2.3).
FRAME_MIN_SIZE: Final = 4096
# Smallest max_unfinished_size: room for messages that are unfinished for a moment only, such as a
# small one that arrives in two reads.
UNFINISHED_SIZE_MIN: Final = 1048576
# Smallest journal file: it holds at least one full group-commit buffer (1 MiB).
JOURNAL_FILE_SIZE_MIN: Final = 1048576
# Smallest file of a content store; smaller ones would be mostly names and headers.
CONTENT_FILE_SIZE_MIN: Final = 65536
# Largest queue_index_embed_msgs_below; larger messages gain nothing from lying in the index.
EMBED_MAX: Final = 1048576
# Entries of one segment of a queue's index. Existing files depend on it, so the setting cannot
# change it.
SEGMENT_ENTRIES: Final = 16384
# Upper bound of settings that are mere limits: nothing of that size must fit anywhere.
SIZE_MAX: Final = 2**60
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")

# Names of `Config` fields with their new values.
Changes = dict[str, Any]
# Takes (the key after its prefix, the value, the settings so far); returns the fields to change.
Setter = Callable[[str, str, Config], Changes]


def _integer(name: str, low: int, high: int) -> Setter:
    def parse(_rest: str, value: str, _config: Config) -> Changes:
        if not re.fullmatch(r"\d{1,18}", value):
            raise ConfigError(f"expected an integer, got {value!r}")
        return {name: _within(int(value), low, high)}

    return parse


_UNITS: Final = {
    "": 1,
    **dict.fromkeys(("k", "kib"), 1024),
    **dict.fromkeys(("m", "mib"), 1024**2),
    **dict.fromkeys(("g", "gib"), 1024**3),
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    **dict.fromkeys(("t", "tib"), 1024**4),
    "tb": 1000**4,
}


def _size(name: str, low: int, high: int) -> Setter:
    def parse(_rest: str, value: str, _config: Config) -> Changes:
        match = re.fullmatch(r"(\d{1,15})([a-z]*)", value.lower())
        if match is None or match[2] not in _UNITS:
            raise ConfigError(f"expected a size such as 1048576, 16MiB or 100MB, got {value!r}")
        return {name: _within(int(match[1]) * _UNITS[match[2]], low, high)}

    return parse


def _number(name: str, low: float, high: float) -> Setter:
    def parse(_rest: str, value: str, _config: Config) -> Changes:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            raise ConfigError(f"expected a number such as 0.4, got {value!r}")
        number = float(value)
        if not low <= number <= high:
            raise ConfigError(f"{value} is not between {low:g} and {high:g}")
        return {name: number}

    return parse


def _relative(key: str, high: float) -> Setter:
    """Setter of a share of all memory; resets the absolute limit, since the later setting wins."""

    def parse(_rest: str, value: str, config: Config) -> Changes:
        return _number(f"{key}_relative", 0, high)("", value, config) | {f"{key}_absolute": -1}

    return parse


def _calculation_strategy(_rest: str, value: str, _config: Config) -> Changes:
    if value != "rss":
        raise ConfigError(
            f"only rss is available (what the system counts before it kills), got {value!r}"
        )
    return {}


def _segment_entry_count(_rest: str, value: str, _config: Config) -> Changes:
    if value != str(SEGMENT_ENTRIES):
        raise ConfigError(f"a segment of the index has {SEGMENT_ENTRIES} entries, got {value!r}")
    return {}


def _no_credit(_rest: str, _value: str, _config: Config) -> Changes:
    raise ConfigError(
        "not available: flow control counts the bytes that wait for the disk, not credits"
    )


def _within(number: int, low: int, high: int) -> int:
    if not low <= number <= high:
        raise ConfigError(f"{number} is not between {low} and {high}")
    return number


def _frame_max(_rest: str, value: str, config: Config) -> Changes:
    changes = _integer("frame_max", 0, 2**31 - 1)("", value, config)
    if changes["frame_max"] != 0:
        changes = _integer("frame_max", FRAME_MIN_SIZE, 2**31 - 1)("", value, config)
    return changes


def _text(name: str) -> Setter:
    def parse(_rest: str, value: str, _config: Config) -> Changes:
        if value == "":
            raise ConfigError("expected a value")
        # Users, vhosts and passwords travel as AMQP shortstr, at most 255 bytes.
        if len(value.encode()) > 255:
            raise ConfigError("longer than 255 bytes")
        return {name: value}

    return parse


def _flag(name: str) -> Setter:
    def parse(_rest: str, value: str, _config: Config) -> Changes:
        if value not in ("true", "false"):
            raise ConfigError(f"expected true or false, got {value!r}")
        return {name: value == "true"}

    return parse


def _log_level(_rest: str, value: str, _config: Config) -> Changes:
    if value not in LOG_LEVELS:
        raise ConfigError(f"expected one of {', '.join(LOG_LEVELS)}, got {value!r}")
    return {"log_level": value}


def _listener(rest: str, value: str, _config: Config) -> Changes:
    if rest not in ("default", "1"):
        raise ConfigError("more than one listener is not supported yet")
    host, port = parse_address(value)
    return {"tcp_listeners": ((host, port),)}


def _loopback_users(_rest: str, value: str, _config: Config) -> Changes:
    if value != "none":
        raise ConfigError("expected none, or loopback_users.NAME = true")
    return {"loopback_users": frozenset[str]()}


def _loopback_user(rest: str, value: str, config: Config) -> Changes:
    if value not in ("true", "false"):
        raise ConfigError(f"expected true or false, got {value!r}")
    if value == "true":
        return {"loopback_users": config.loopback_users | {rest}}
    return {"loopback_users": config.loopback_users - {rest}}


# A key that ends in a dot is a prefix: its setter gets the rest of the key.
KEYS: Final[dict[str, Setter]] = {
    "listeners.tcp.": _listener,
    "channel_max": _integer("channel_max", 0, 65535),
    "frame_max": _frame_max,
    "heartbeat": _integer("heartbeat", 0, 65535),
    "max_message_size": _size("max_message_size", 1, MAX_MESSAGE_SIZE_LIMIT),
    "max_unfinished_size": _size("max_unfinished_size", UNFINISHED_SIZE_MIN, SIZE_MAX),
    "unfinished_message_timeout": _integer("unfinished_message_timeout", 0, 86400),
    "default_user": _text("default_user"),
    "default_pass": _text("default_pass"),
    "default_vhost": _text("default_vhost"),
    "accept_lost_definitions": _flag("accept_lost_definitions"),
    "loopback_users": _loopback_users,
    "loopback_users.": _loopback_user,
    "journal_file_size_limit": _size("journal_file_size_limit", JOURNAL_FILE_SIZE_MIN, 2**31 - 1),
    "vm_memory_high_watermark.absolute": _size("vm_memory_high_watermark_absolute", 0, SIZE_MAX),
    "vm_memory_high_watermark.relative": _relative("vm_memory_high_watermark", 1),
    "vm_memory_high_watermark_paging_ratio": _number(
        "vm_memory_high_watermark_paging_ratio", 0, 1000
    ),
    "vm_memory_calculation_strategy": _calculation_strategy,
    "memory_monitor_interval": _integer("memory_monitor_interval_ms", 100, 3600000),
    "total_memory_available_override_value": _size(
        "total_memory_available_override_value", 1048576, SIZE_MAX
    ),
    "disk_free_limit.absolute": _size("disk_free_limit_absolute", 0, SIZE_MAX),
    "disk_free_limit.relative": _relative("disk_free_limit", 1000),
    "queue_index_embed_msgs_below": _size("queue_index_embed_msgs_below", 0, EMBED_MAX),
    "queue_index_segment_entry_count": _segment_entry_count,
    "msg_store_file_size_limit": _size(
        "msg_store_file_size_limit", CONTENT_FILE_SIZE_MIN, 2**31 - 1
    ),
    "msg_store_io_batch_size": _integer("msg_store_io_batch_size", 1, 65536),
    "msg_store_credit_disc_bound": _no_credit,
    "credit_flow_default_credit": _no_credit,
    "log.console.level": _log_level,
}

# Prefixes of keys that rabbitmq.conf may hold and warren cannot honour yet: the error then says
# "not supported yet" instead of "unknown".
NOT_YET: Final = (
    "auth_backends", "auth_mechanisms", "channel_operation_timeout", "cluster_", "collect_statistics_interval",
    "connection_max", "consumer_timeout", "credential_validator", "default_consumer_prefetch", "default_permissions",
    "default_user_tags", "definitions", "handshake_timeout", "initial_frame_max", "listeners.ssl", "load_definitions",
    "log.", "management", "message_store_shutdown_timeout", "mirroring_sync_batch_size", "msg_store_", "net_ticktime",
    "num_acceptors", "password_hashing_module", "prometheus", "proxy_protocol", "queue_index_", "queue_master_locator",
    "raft", "reverse_dns_lookups", "ssl_", "tcp_listen_options", "vhost_restart_strategy",
)  # fmt: skip

# WARREN_CONF__loopback_users__guest=false sets loopback_users.guest.
CONF_PREFIX: Final = "WARREN_CONF__"
_ENVIRONMENT_KEYS: Final = {
    "WARREN_DEFAULT_USER": "default_user",
    "WARREN_DEFAULT_PASS": "default_pass",
    "WARREN_DEFAULT_VHOST": "default_vhost",
}


def load(
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    settings: list[str] | None = None,
    *,
    data_dir: Path | None = None,
    node_name: str | None = None,
    listen: str | None = None,
    management: str | None = None,
    accept_lost_definitions: bool = False,
) -> Config:
    """The configuration from all sources: `settings` are KEY=VALUE of `--set`, the rest are flags.

    Raises ConfigError. Reads nothing but the configuration file and creates nothing.
    """
    environment = os.environ if environment is None else environment
    config = Config()
    path = config_file or _environment_path(environment, "WARREN_CONFIG_FILE")
    if path is not None:
        for where, key, value in _file_settings(path):
            config = _set(config, where, key, value)
    config = _from_environment(config, environment)
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: expected KEY=VALUE")
        config = _set(config, "--set", key.strip(), value.strip())
    if data_dir is not None:
        config = replace(config, data_dir=data_dir)
    if node_name is not None:
        config = replace(config, node_name=_node_name("--node", node_name))
    if listen is not None:
        with _blame("--listen"):
            host, port = parse_address(listen)
        config = replace(config, tcp_listeners=((host, port),))
    if accept_lost_definitions:
        config = replace(config, accept_lost_definitions=True)
    if management not in (None, "off"):
        raise ConfigError("--management: the management interface is not available yet; use off")
    return config


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of `5672`, `127.0.0.1:5672`, `[::1]:5672`, `host:5672` or `:5672`.

    Host "" means every address. Raises ConfigError.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{text!r} is ambiguous; write an IPv6 address as [::1]:{AMQP_PORT}")
    if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise ConfigError(f"expected PORT or HOST:PORT, got {text!r}")
    return host, int(port)


def _set(config: Config, where: str, key: str, value: str) -> Config:
    with _blame(where):
        setter, rest = _setter_of(key)
        with _blame(key):
            # rabbitmq.conf writes a dot inside a name as `\.`.
            return replace(config, **setter(rest.replace("\\.", "."), value, config))


def _setter_of(key: str) -> tuple[Setter, str]:
    """The setter of `key`, and the rest of the key when its prefix found the setter, else ""."""
    if key in KEYS and not key.endswith("."):
        return KEYS[key], ""
    for prefix, setter in KEYS.items():
        if prefix.endswith(".") and key.startswith(prefix) and key != prefix:
            return setter, key.removeprefix(prefix)
    raise ConfigError(_unknown(key))


@contextmanager
def _blame(where: str) -> Iterator[None]:
    """Prefix the text of a ConfigError with its place, `where`."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _unknown(key: str) -> str:
    if key.startswith(NOT_YET):
        return f"{key} is not supported yet"
    # Imported only for an error: a normal start does not wait for the library.
    import difflib

    names = [name.rstrip(".") for name in KEYS]
    similar = difflib.get_close_matches(key, names, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"unknown key {key!r}{hint}"


def _file_settings(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields (FILE:LINE, key, value) of a file, or of a directory's `*.conf` files by name."""
    files = sorted(path.glob("*.conf")) if path.is_dir() else [path]
    for file in files:
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(f"{file}: cannot be read: {reason}") from None
        for number, line in enumerate(lines, 1):
            where = f"{file}:{number}"
            # A comment begins at the start of the line or after a blank, because a password may
            # contain `#`.
            text = re.sub(r"(^|\s)#.*", "", line).strip()
            if text == "":
                continue
            key, equals, value = text.partition("=")
            if not equals or key.strip() == "":
                raise ConfigError(f"{where}: expected KEY = VALUE, got {text!r}")
            value = value.strip()
            if len(value) >= 2 and value[0] == value[-1] == "'":
                value = value[1:-1]
            yield where, key.strip(), value


def _from_environment(config: Config, environment: Mapping[str, str]) -> Config:
    # Ignore other WARREN_ variables: an orchestrator that runs a service called "warren" puts
    # variables such as WARREN_PORT and WARREN_SERVICE_HOST into every container.
    data_dir = _environment_path(environment, "WARREN_DATA_DIR")
    if data_dir is not None:
        config = replace(config, data_dir=data_dir)
    if node_name := environment.get("WARREN_NODENAME"):
        config = replace(config, node_name=_node_name("WARREN_NODENAME", node_name))
    if host := environment.get("WARREN_NODE_IP_ADDRESS"):
        config = replace(config, tcp_listeners=((host, config.tcp_listeners[0][1]),))
    if port := environment.get("WARREN_NODE_PORT"):
        with _blame("WARREN_NODE_PORT"):
            _, number = parse_address(port)
        config = replace(config, tcp_listeners=((config.tcp_listeners[0][0], number),))
    for variable, key in _ENVIRONMENT_KEYS.items():
        if value := environment.get(variable):
            config = _set(config, variable, key, value)
    for variable in sorted(environment):
        if variable.startswith(CONF_PREFIX):
            key = variable.removeprefix(CONF_PREFIX).replace("__", ".")
            config = _set(config, variable, key, environment[variable])
    return config


def _environment_path(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable)
    return Path(value) if value else None


def _node_name(where: str, text: str) -> str:
    """The node name `name@host` of `text`; a bare name gets this machine's host name."""
    name = text if "@" in text else f"{text}@{short_host_name()}"
    if not re.fullmatch(r"[\w.-]+@[\w.-]+", name, re.ASCII):
        raise ConfigError(
            f"{where}: {text!r} is not a node name; letters, digits, _ . - and one @ may be used"
        )
    return name
