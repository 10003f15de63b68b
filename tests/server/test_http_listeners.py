"""Where the HTTP API and metrics listen, by keys of RabbitMQ and warren's own."""

from pathlib import Path

import pytest

from warrenmq.server.config.effective import effective
from warrenmq.server.config.load import Flags, read_sources
from warrenmq.server.config.options.http_listeners import HttpListener, SiteOptions

TLS = ("management.ssl.certfile=/etc/passwd", "management.ssl.keyfile=/etc/group")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), "127.0.0.1:15672"),
        (("management.listen=off",), ""),
        (("management.tcp.port=8080",), "*:8080"),
        (("management.tcp.ip=::1",), "[::1]:15672"),
        (("management.tcp.port=1", "management.listen=127.0.0.1:2"), "127.0.0.1:2"),
        (("management.listen=off", "management.tcp.port=1"), "*:1"),
        (("management.listener.port=1", "management.listener.ip=10.0.0.1"), "10.0.0.1:1"),
        (TLS, "*:15671 TLS"),
        ((*TLS, "management.ssl.ip=127.0.0.1", "management.ssl.port=1"), "127.0.0.1:1 TLS"),
        ((*TLS, "management.tcp.port=2"), "*:2, *:15671 TLS"),
        (
            (
                "management.listener.port=1",
                "management.listener.ssl=true",
                *(setting.replace(".ssl.", ".listener.ssl_opts.") for setting in TLS),
            ),
            "*:1 TLS",
        ),
        (("management.ssl.password=x",), "127.0.0.1:15672"),
    ],
)
def test_the_listeners_of_the_api(settings: tuple[str, ...], expected: str) -> None:
    loaded = read_sources(Flags(settings=settings), {})
    assert loaded.errors == [] and loaded.warnings == []
    listening = loaded.config.management.api_listeners()
    shown = [each.where + (" TLS" if each.tls else "") for each in listening]
    assert ", ".join(shown) == expected


def test_metrics_have_the_same_keys() -> None:
    flags = Flags(settings=("prometheus.tcp.port=1", "prometheus.tcp.idle_timeout=20"))
    (listening,) = read_sources(flags, {}).config.prometheus.metrics_listeners()
    assert listening.where == "*:1"
    assert listening.options == HttpListener(port=1, idle_timeout_ms=20)


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        (
            "management.ssl.port=1",
            "--set: management.ssl.port: needs management.ssl.certfile and management.ssl.keyfile",
        ),
        (
            "prometheus.ssl.certfile=/etc/passwd",
            "--set: prometheus.ssl.certfile: needs prometheus.ssl.certfile and prometheus.ssl.keyfile",
        ),
        (
            "management.path_prefix=a b",
            "--set: management.path_prefix: expected a path such as /rabbit, got 'a b'",
        ),
        (
            "management.csp.policy=ä",
            "--set: management.csp.policy: expected printable ASCII, got 'ä'",
        ),
        (
            "management.http.max_connections=0",
            "--set: management.http.max_connections: 0 is not between 1 and 65535",
        ),
    ],
)
def test_a_fault_is_one_line(setting: str, fault: str) -> None:
    assert read_sources(Flags(settings=(setting,)), {}).errors == [fault]


def test_the_management_process_gets_all_options() -> None:
    settings = (
        *TLS,
        "management.cors.allow_origins.1=https://a.example",
        "management.hsts.policy=max-age=9",
        "management.path_prefix=rabbit/",
        "prometheus.listen=off",
        "prometheus.path=/",
    )
    config = read_sources(Flags(settings=settings), {}).config
    options = SiteOptions(config.management, config.prometheus)
    assert SiteOptions.from_line(options.to_line()) == options
    assert options.management.tls.keyfile == Path("/etc/group")
    assert options.management.path_prefix == "/rabbit"
    assert options.management.headers == (("strict-transport-security", "max-age=9"),)
    assert options.metrics.metrics_listeners() == []


def test_a_setting_with_two_names_is_shown_once() -> None:
    loaded = read_sources(Flags(settings=("management.listener.port=1",)), {})
    shown = {row.key: row.value for row in effective(loaded)}
    assert shown["management.listener.port"] == "1" and "management.tcp.port" not in shown
    assert "management.listener.ip" not in shown and shown["management.path_prefix"] == ""
