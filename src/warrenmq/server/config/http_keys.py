"""The keys of the HTTP API and of metrics: `management.*` and `prometheus.*`."""

import re
from collections.abc import Iterator
from typing import Final

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.key import RESTART, Key, in_order, pairs
from warrenmq.server.config.options.http_listeners import OFF
from warrenmq.server.config.tls_keys import tls_keys
from warrenmq.server.config.values import (
    address,
    flag,
    integer,
    ip_address,
    one_of,
    only,
    path,
    size,
    text,
    word_or,
)

_PORT: Final = integer(0, 65535)
_MILLISECONDS: Final = integer(1, 86_400_000)
_BODY_SIZE: Final = size(1, 2**30)
# RabbitMQ has an older group of keys for the listener of the API.
_OLDER: Final = {"management.tcp": "management.listener"}
# Options of a listener that stand in a group of their own below the older key.
_SERVER: Final = {
    "request_timeout": ("request_timeout_ms", _MILLISECONDS),
    "idle_timeout": ("idle_timeout_ms", _MILLISECONDS),
    "compress": ("compress", flag),
}
_HEADERS: Final = {
    "management.csp.policy": "content-security-policy",
    "management.hsts.policy": "strict-transport-security",
    "management.headers.content_type_options": "x-content-type-options",
    "management.headers.xss_protection": "x-xss-protection",
    "management.headers.frame_options": "x-frame-options",
}


def url_path(value: str) -> str:
    """A path such as `/rabbit`, without a `/` at its end. Raises ConfigError."""
    if not re.fullmatch(r"/?[A-Za-z0-9._~/-]{1,200}", value):
        raise ConfigError(f"expected a path such as /rabbit, got {value!r}")
    return "/" + value.strip("/") if value.strip("/") else ""


def header_value(value: str) -> str:
    """The value of a header: printable ASCII. Raises ConfigError."""
    if not re.fullmatch(r"[ -~]{1,4000}", value):
        raise ConfigError(f"expected printable ASCII, got {value!r}")
    return value


def _listener_keys(site: str) -> Iterator[Key]:
    """The keys that say where a site listens, and how long it waits for clients."""
    names = ["tcp.ip", "tcp.port"]
    if f"{site}.tcp" in _OLDER:
        names += ["listener.ip", "listener.port"]
    yield Key(
        f"{site}.listen",
        f"{site}.listen",
        word_or(OFF, OFF, address),
        RESTART,
        overrides=tuple(f"{site}.{name}" for name in names),
    )
    for group in ("tcp", "ssl"):
        prefix, field = f"{site}.{group}", f"{site}.{group}"
        older = _OLDER.get(prefix, "")
        # The address without TLS has two spellings more; the last one that is set counts.
        listen = f"{site}.listen"
        for name, parse in (("ip", ip_address), ("port", _PORT)):
            overrides = (listen,) if group == "tcp" else ()
            yield Key(f"{prefix}.{name}", f"{field}.{name}", parse, RESTART, overrides=overrides)
            if older:
                yield Key(f"{older}.{name}", f"{field}.{name}", parse, RESTART, overrides=(listen,))
        for name, (option, parse) in _SERVER.items():
            yield Key(f"{prefix}.{name}", f"{field}.{option}", parse, RESTART)
            if older:
                yield Key(f"{older}.server.{name}", f"{field}.{option}", parse, RESTART)
    yield from tls_keys(f"{site}.ssl", f"{site}.tls", RESTART)


HTTP_KEYS: Final = (
    *_listener_keys("management"),
    Key("management.listener.ssl", "management.is_tls", flag, RESTART),
    *tls_keys("management.listener.ssl_opts", "management.tls", RESTART),
    Key("management.path_prefix", "management.path_prefix", url_path, RESTART),
    Key(
        "management.cors.allow_origins",
        "management.cors_origins",
        only("none", (), "expected none, or a key with a name: .NAME = ORIGIN"),
        RESTART,
    ),
    Key(
        "management.cors.allow_origins.*",
        "management.cors_origins",
        text,
        RESTART,
        collect=in_order,
    ),
    Key("management.cors.max_age", "management.cors_max_age", integer(0, 2**31 - 1), RESTART),
    Key("management.http.max_body_size", "management.max_body_size", _BODY_SIZE, RESTART),
    Key(
        "management.http.max_connections",
        "management.max_connections",
        integer(1, 65535),
        RESTART,
    ),
    Key("management.http_log_dir", "management.http_log_dir", path, RESTART),
    *(
        Key(name, "management.headers", header_value, RESTART, collect=pairs, member=header)
        for name, header in _HEADERS.items()
    ),
    Key(
        "management.rates_mode",
        "management.rates_mode",
        one_of("basic", "detailed", "none"),
        RESTART,
    ),
    Key("management.disable_stats", "management.disable_stats", flag, RESTART),
    Key("management.enable_queue_totals", "management.enable_queue_totals", flag, RESTART),
    Key(
        "management.db_cache_multiplier",
        "management.db_cache_multiplier",
        integer(0, 1000),
        RESTART,
    ),
    Key(
        "management.login_session_timeout",
        "management.session_timeout",
        integer(1, 10_080),
        RESTART,
    ),
    Key("management.statistics_file", "management.statistics_file", path, RESTART),
    Key("management.jobs_directory", "management.jobs_directory", path, RESTART),
    Key(
        "collect_statistics_interval",
        "management.statistics_interval_ms",
        integer(1, 86_400_000),
        RESTART,
    ),
    *_listener_keys("prometheus"),
    Key("prometheus.path", "prometheus.path", url_path, RESTART),
    Key("prometheus.return_per_object_metrics", "prometheus.is_per_object", flag, RESTART),
)
