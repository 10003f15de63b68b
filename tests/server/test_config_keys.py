"""The table of keys: each takes a value and refuses a wrong one, and the page lists them all."""

import re
from pathlib import Path

import pytest

from warrenmq.broker.definitions import credential_rules, passwords
from warrenmq.server.config.changes import field_value, is_live
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.key import CONNECT, FIRST_START, LATER, NEVER, RELOAD, RESTART, Key
from warrenmq.server.config.keys import (
    ALL,
    CREDENTIAL_VALIDATORS,
    PASSWORD_HASHINGS,
    SECTIONS,
)
from warrenmq.server.config.load import Flags, load, read_sources
from warrenmq.server.config.lookup import find_key
from warrenmq.server.config.options.log import LEVELS
from warrenmq.server.config.settings import Config
from warrenmq.server.config.waiting_keys import WAITING

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
SCHEMAS = sorted(
    Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-3.*/plugins/*/priv/schema/rabbit*.schema")
)
# Each key takes one of these values.
VALUES = (
    "true", "false", "info", "5000", "2MB", "8192", "50", "1", "0.5", "127.0.0.1", "none", "internal", "on", "/etc", "rss",
    "16384", "local_filesystem", "verify_peer", "common_name", "json", "$D0", "PLAIN", "tlsv1.3", "dns", "udp",
    "rfc5424", "sha256", "coarse", "basic", "autoheal", "disc", "persistent", "stdout", "lc",
    "http://127.0.0.1:2379", "client-local", *PASSWORD_HASHINGS,
    *CREDENTIAL_VALIDATORS,
)  # fmt: skip
# No key takes this value as a number, a word, a size, an address, a readable path or an expression.
WRONG = "(/nowhere"
TABLE = (*ALL, *WAITING)
TLS_GROUPS = ("ssl_options", "management.ssl", "management.listener.ssl_opts", "prometheus.ssl")
# Fields of files of which one alone is an error, and a path without a default.
UNSET = ("log.file",)


def is_accepted(key: Key, value: str) -> bool:
    try:
        key.parse(value)
    except ConfigError:
        return False
    return True


def good_value(key: Key) -> str:
    return next(value for value in VALUES if is_accepted(key, value))


def takes_any_text(key: Key) -> bool:
    return is_accepted(key, WRONG)


def test_every_key_takes_a_value_and_a_field_of_the_configuration() -> None:
    for key in TABLE:
        name = key.name.replace("*", "1")
        loaded = read_sources(Flags(settings=(f"{name}={good_value(key)}",)), {})
        # Some keys are of use only together with others.
        assert [
            error for error in loaded.errors if " need" not in error and " belong" not in error
        ] == []
        assert find_key(name) is key
        assert (
            key.field == ""
            or field_value(loaded.config, key.field) is not None
            or key.field in UNSET
        )


def test_a_wrong_value_is_refused_where_the_type_is_known() -> None:
    """Keys of names, paths that need not exist, and texts for people take everything."""
    unchecked = {key.name for key in TABLE if key.effect not in (LATER, NEVER)} & {
        key.name for key in TABLE if takes_any_text(key)
    }
    assert unchecked == {
        "cluster_name", "data_dir", "default_pass", "default_user", "default_vhost", "log.dir", "log.file", "pid_file",
        "cluster.name", "cluster.secret", "cluster.etcd.username", "cluster.etcd.password",
        *(f"{group}.{name}" for group in TLS_GROUPS for name in ("ciphers.*", "password")),
        "management.http_log_dir", "management.statistics_file", "management.jobs_directory", "management.cors.allow_origins.*", "management.csp.policy", "management.hsts.policy",
        *(f"management.headers.{name}" for name in ("content_type_options", "frame_options", "xss_protection")),
    }  # fmt: skip


def test_the_members_of_the_defaults_make_the_default() -> None:
    for key in ALL:
        if key.collect is not None:
            assert key.collect(dict(key.members)) == field_value(Config(), key.field), key.name


def test_the_keys_of_one_group_of_options_change_alike() -> None:
    """A reload takes such a group as a whole."""
    for group in ("tcp", "tls", "log", "management", "prometheus"):
        assert len({is_live(key) for key in ALL if key.field.startswith(f"{group}.")}) == 1


def test_names_of_rules_and_algorithms_are_those_of_the_broker() -> None:
    assert PASSWORD_HASHINGS == (passwords.SHA256, passwords.SHA512)
    assert CREDENTIAL_VALIDATORS == (
        credential_rules.ACCEPT_EVERYTHING,
        credential_rules.MIN_LENGTH,
        credential_rules.REGEXP,
    )
    assert load(None, {}).broker.password_hashing in PASSWORD_HASHINGS
    assert load(None, {}).log.console_level in LEVELS


@pytest.mark.skipif(not SCHEMAS, reason="rabbitmq-server is not installed")
def test_every_key_of_rabbitmq_and_its_plugins_is_known() -> None:
    names = {
        re.sub(r"\$\w+", "1", name)
        for schema in SCHEMAS
        for name in re.findall(r'^\{mapping,\s*"([^"]+)"', schema.read_text("utf-8"), re.M)
    }
    assert len(names) > 500
    for name in names:
        find_key(name)


EFFECT_ON_PAGE = {
    RELOAD: "reload",
    CONNECT: "reload (new connections)",
    RESTART: "restart",
    FIRST_START: "first start",
    LATER: "later version",
}


def test_the_page_lists_every_key_with_the_time_of_its_effect() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|[^|]*\| ([^|]*) \|", PAGE.read_text("utf-8"), re.M)
    listed = {name: effect for names, effect in rows for name in re.findall(r"`([^`]+)`", names)}
    expected = {key.name.replace("*", "NAME"): EFFECT_ON_PAGE[key.effect] for key in ALL}
    assert {name: listed.get(name) for name in expected} == expected


def test_the_page_explains_a_key_in_the_section_that_a_node_names() -> None:
    """The file, in which keys without effect are explained, is a section too."""
    parts = re.split(r"^##+ (.*)\n", PAGE.read_text("utf-8"), flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert "`raft.*`" in sections["The file"]
    for name, keys in SECTIONS.items():
        for key in keys:
            assert f"`{key.name.replace('*', 'NAME')}`" in sections[name], key.name
