"""Configuration: all sources, their precedence, and one-line errors that name the place."""

from pathlib import Path

import pytest

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.load import Flags, load, read_sources
from warrenmq.server.config.options.log import LogOptions
from warrenmq.server.config.settings import Config


def write(tmp_path: Path, text: str, name: str = "warren.conf") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def error_of(tmp_path: Path, line: str) -> str:
    path = write(tmp_path, f"# first line\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    text = str(caught.value)
    assert text.startswith(f"{path}:2: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}:2: ")


def test_defaults_are_those_of_rabbitmq() -> None:
    loaded = load(None, {})
    assert loaded.tcp_listeners == (("", 5672),)
    assert (loaded.broker.channel_max, loaded.broker.frame_max, loaded.broker.heartbeat) == (
        2047,
        131072,
        60,
    )
    assert loaded.broker.max_message_size == 134217728
    assert (loaded.default_user, loaded.default_pass, loaded.default_vhost) == (
        "guest",
        "guest",
        "/",
    )
    assert loaded.loopback_users == {"guest"}
    assert loaded.node_name.startswith("warren@")


def test_every_key_of_a_file_arrives(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        ## RabbitMQ's own layout: blank lines, comments, blanks around the equals sign or none
        listeners.tcp.default=127.0.0.1:5680   # the test port
        channel_max = 10
        frame_max = 8192
        heartbeat = 0
        max_message_size = 16MiB
        default_user = alice
        default_pass = se#cret
        default_vhost = 'main # vhost'
        loopback_users.guest = false
        loopback_users.a\\.b = true
        journal_file_size_limit = 2MB
        vm_memory_high_watermark.absolute = 2GiB
        vm_memory_high_watermark_paging_ratio = 0.75
        vm_memory_calculation_strategy = rss
        memory_monitor_interval = 1000
        total_memory_available_override_value = 8GB
        disk_free_limit.absolute = 1TB
        queue_index_embed_msgs_below = 4kB
        queue_index_segment_entry_count = 16384
        msg_store_file_size_limit = 32MiB
        msg_store_io_batch_size = 4096
        log.console.level = debug
        """,
    )
    loaded = load(path, {})
    assert loaded.tcp_listeners == (("127.0.0.1", 5680),)
    assert (loaded.broker.channel_max, loaded.broker.frame_max, loaded.broker.heartbeat) == (
        10,
        8192,
        0,
    )
    assert loaded.broker.max_message_size == 16 * 1024**2
    assert (loaded.default_user, loaded.default_pass) == ("alice", "se#cret")
    assert loaded.default_vhost == "main # vhost"
    assert loaded.loopback_users == {"a.b"}
    assert loaded.journal_file_size_limit == 2_000_000
    assert loaded.broker.vm_memory_high_watermark_absolute == 2 << 30
    assert loaded.broker.vm_memory_high_watermark_paging_ratio == 0.75
    assert loaded.broker.memory_monitor_interval_ms == 1000
    assert loaded.total_memory_available_override_value == 8_000_000_000
    assert loaded.broker.disk_free_limit_absolute == 10**12
    assert loaded.broker.queue_index_embed_msgs_below == 4000
    assert (loaded.broker.msg_store_file_size_limit, loaded.broker.msg_store_io_batch_size) == (
        32 << 20,
        4096,
    )
    assert loaded.log.console_level == "debug"


def test_of_an_absolute_and_a_relative_limit_the_later_counts() -> None:
    loaded = load(None, {}, ["disk_free_limit.absolute=1GB", "disk_free_limit.relative=1.5"])
    assert (loaded.broker.disk_free_limit_absolute, loaded.broker.disk_free_limit_relative) == (
        -1,
        1.5,
    )
    loaded = load(None, {}, ["vm_memory_high_watermark.relative=0.6"])
    assert (
        loaded.broker.vm_memory_high_watermark_absolute,
        loaded.broker.vm_memory_high_watermark_relative,
    ) == (
        -1,
        0.6,
    )
    loaded = load(
        None,
        {},
        ["vm_memory_high_watermark.relative=0.6", "vm_memory_high_watermark.absolute=1000"],
    )
    assert loaded.broker.vm_memory_high_watermark_absolute == 1000


def test_a_quoted_value_keeps_its_comment_sign(tmp_path: Path) -> None:
    assert load(write(tmp_path, "default_pass = '#1'"), {}).default_pass == "#1"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048577", 1048577),
        ("2048k", 2097152),
        ("2M", 2097152),
        ("2mib", 2097152),
        ("1GiB", 1 << 30),
        ("3MB", 3000000),
    ],
)
def test_sizes_have_the_units_of_rabbitmq(tmp_path: Path, text: str, size: int) -> None:
    assert (
        load(write(tmp_path, f"journal_file_size_limit = {text}"), {}).journal_file_size_limit
        == size
    )


def test_the_last_of_two_settings_counts_and_a_directory_is_read_in_order_of_names(
    tmp_path: Path,
) -> None:
    write(tmp_path, "heartbeat = 20\nheartbeat = 30", "20-later.conf")
    write(tmp_path, "heartbeat = 10\nchannel_max = 7", "10-first.conf")
    write(tmp_path, "nonsense", "30-not-read.txt")
    loaded = load(tmp_path, {})
    assert (loaded.broker.heartbeat, loaded.broker.channel_max) == (30, 7)


def test_flags_win_over_set_over_environment_over_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, "listeners.tcp.1 = 1111\nheartbeat = 1\nchannel_max = 1\nframe_max = 5001"
    )
    environment = {
        "WARREN_CONFIG_FILE": str(path),
        "WARREN_NODE_PORT": "2222",
        "WARREN_CONF__heartbeat": "2",
        "WARREN_CONF__channel_max": "2",
    }
    loaded = load(
        None, environment, ["listeners.tcp.default=3333", "heartbeat=3"], listen="[::1]:4444"
    )
    assert loaded.tcp_listeners == (("::1", 4444),)
    assert (loaded.broker.heartbeat, loaded.broker.channel_max, loaded.broker.frame_max) == (
        3,
        2,
        5001,
    )
    assert load(None, environment, ["listeners.tcp.default=3333"]).tcp_listeners[0][1] == 3333
    assert load(None, environment).tcp_listeners[0][1] == 2222


def test_environment_variables(tmp_path: Path) -> None:
    environment = {
        "WARREN_DATA_DIR": str(tmp_path / "data"),
        "WARREN_NODENAME": "rabbit@here",
        "WARREN_NODE_IP_ADDRESS": "127.0.0.1",
        "WARREN_DEFAULT_USER": "bob",
        "WARREN_DEFAULT_PASS": "pw",
        "WARREN_DEFAULT_VHOST": "v",
        "WARREN_CONF__loopback_users__bob": "true",
        # Variables that an orchestrator sets for a service named "warren" must be ignored.
        "WARREN_PORT": "tcp://10.0.0.1:5672",
        "WARREN_SERVICE_HOST": "10.0.0.1",
    }
    loaded = load(None, environment)
    assert loaded.data_dir == tmp_path / "data"
    assert loaded.node_name == "rabbit@here"
    assert loaded.tcp_listeners[0][0] == "127.0.0.1"
    assert (loaded.default_user, loaded.default_pass, loaded.default_vhost) == ("bob", "pw", "v")
    assert loaded.loopback_users == {"bob"}


def test_a_bare_node_name_gets_the_host() -> None:
    config = read_sources(Flags(node_name="w1"), {}).config
    name, _, host = config.node_name.partition("@")
    assert name == "w1"
    assert host != ""


def test_all_users_may_be_let_in_from_everywhere() -> None:
    assert load(None, {}, ["loopback_users=none"]).loopback_users == frozenset()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("hartbeat = 10", "unknown key 'hartbeat'; did you mean heartbeat?"),
        ("zzz = 10", "unknown key 'zzz'"),
        ("loopback_users. = true", "unknown key 'loopback_users.'; did you mean loopback_users?"),
        ("auth_backends.1 = ldap", "auth_backends.1: only internal is available, got 'ldap'"),
        (
            "vm_memory_high_watermark.relative = 40%",
            "vm_memory_high_watermark.relative: expected a number such as 0.4, got '40%'",
        ),
        (
            "vm_memory_high_watermark.relative = 1.1",
            "vm_memory_high_watermark.relative: 1.1 is not between 0 and 1",
        ),
        (
            "vm_memory_high_watermark = 0.4",
            "unknown key 'vm_memory_high_watermark'; did you mean vm_memory_high_watermark.relative?",
        ),
        (
            "vm_memory_calculation_strategy = erlang",
            "vm_memory_calculation_strategy: only rss is available (what the system counts before it kills), got 'erlang'",
        ),
        (
            "memory_monitor_interval = 1",
            "memory_monitor_interval: 1 is not between 100 and 3600000",
        ),
        (
            "disk_free_limit.absolute = much",
            "disk_free_limit.absolute: expected a size such as 1048576, 16MiB or 100MB, got 'much'",
        ),
        (
            "queue_index_segment_entry_count = 2048",
            "queue_index_segment_entry_count: a segment of the index has 16384 entries, got '2048'",
        ),
        (
            "msg_store_index_module = x",
            "unknown key 'msg_store_index_module'",
        ),
        (
            "listeners.ssl.default = 5671",
            "listeners.ssl.default: needs ssl_options.certfile and ssl_options.keyfile",
        ),
        (
            "ssl_options.certfile = /nowhere",
            "ssl_options.certfile: /nowhere does not exist or cannot be read",
        ),
        (
            "management.tcp.prot = 1",
            "unknown key 'management.tcp.prot'; did you mean management.tcp.port?",
        ),
        ("management.tcp.port = x", "management.tcp.port: expected an integer, got 'x'"),
        (
            "default_permissions.read = (",
            "default_permissions.read: not a regular expression: missing ) at position 1",
        ),
        (
            "log.file.rotation.date = daily",
            "log.file.rotation.date: expected a date such as $D0, $W0D23, $M1 or $H30, got 'daily'",
        ),
        ("heartbeat", "expected KEY = VALUE"),
        ("default_policies.ha-mode = all", "unknown key 'default_policies.ha-mode'"),
        (
            "loopback_user.guest = false",
            "unknown key 'loopback_user.guest'; did you mean loopback_users.guest?",
        ),
        (
            "auth_backends.1.authn = ldap",
            "auth_backends.1.authn: only internal is available, got 'ldap'",
        ),
        (
            "ssl_options.crl_check = peer",
            "ssl_options.crl_check: lists of revoked certificates are not checked, got 'peer'",
        ),
        ("= 5", "expected KEY = VALUE"),
        (
            "cluster.etcd = user:s3cret@host",
            "cluster.etcd: expected URLs that begin with http:// or https://",
        ),
        ("heartbeat = sixty", "heartbeat: expected an integer, got 'sixty'"),
        ("heartbeat = -1", "heartbeat: expected an integer, got '-1'"),
        ("heartbeat = 65536", "heartbeat: 65536 is not between 0 and 65535"),
        ("frame_max = 4095", "frame_max: 4095 is not between 4096 and 2147483647"),
        (
            "max_message_size = 1 TB",
            "max_message_size: expected a size such as 1048576, 16MiB or 100MB, got '1 TB'",
        ),
        ("max_message_size = 0", "max_message_size: 0 is not between 1 and 536870912"),
        ("default_user =", "default_user: expected a value"),
        (f"default_user = {'u' * 256}", "default_user: longer than 255 bytes"),
        ("loopback_users.guest = yes", "loopback_users.guest: expected true or false, got 'yes'"),
        (
            "loopback_users = guest",
            "loopback_users: expected none, or loopback_users.NAME = true, got 'guest'",
        ),
        (
            "listeners.tcp.default = 70000",
            "listeners.tcp.default: expected PORT or HOST:PORT, got '70000'",
        ),
        (
            "listeners.tcp.default = ::1",
            "listeners.tcp.default: expected PORT or HOST:PORT, got '::1'",
        ),
        (
            "log.console.level = loud",
            "log.console.level: expected one of debug, info, notice, warning, error, critical, alert, emergency, none, got 'loud'",
        ),
    ],
)
def test_errors_are_one_line_and_name_the_place(tmp_path: Path, line: str, text: str) -> None:
    assert error_of(tmp_path, line) == text


@pytest.mark.parametrize(
    ("flags", "environment", "text"),
    [
        (Flags(settings=("heartbeat",)), {}, "--set heartbeat: expected KEY=VALUE"),
        (Flags(settings=("heartbeat=x",)), {}, "--set: heartbeat: expected an integer, got 'x'"),
        (Flags(listen="localhost"), {}, "--listen: expected PORT or HOST:PORT, got 'localhost'"),
        (
            Flags(node_name="a b"),
            {},
            "--node: 'a b' is not a node name; letters, digits, _ . - and one @ may be used",
        ),
        (
            Flags(management="on"),
            {},
            "--management: expected PORT or HOST:PORT, got 'on'",
        ),
        (
            Flags(Path("missing.conf")),
            {},
            "missing.conf: cannot be read: No such file or directory",
        ),
        (Flags(), {"WARREN_CONF__nope": "1"}, "WARREN_CONF__nope: unknown key 'nope'"),
        (
            Flags(),
            {"RABBITMQ_NODE_PORT": "amqp"},
            "RABBITMQ_NODE_PORT: expected PORT or HOST:PORT, got 'amqp'",
        ),
        (
            Flags(),
            {"WARREN_NODENAME": "a b"},
            "WARREN_NODENAME: 'a b' is not a node name; letters, digits, _ . - and one @ may be used",
        ),
    ],
)
def test_errors_name_the_other_sources_too(
    flags: Flags, environment: dict[str, str], text: str
) -> None:
    assert read_sources(flags, environment).errors == [text]


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.conf"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.conf: cannot be read: not UTF-8 text$"):
        load(binary, {})


def test_lost_definitions_are_accepted_by_key_or_by_flag() -> None:
    assert not load(None, {}).accept_lost_definitions
    assert load(None, {}, ["accept_lost_definitions=true"]).accept_lost_definitions
    assert read_sources(Flags(accept_lost_definitions=True), {}).config.accept_lost_definitions
    with pytest.raises(
        ConfigError, match="accept_lost_definitions: expected true or false, got 'yes'"
    ):
        load(None, {}, ["accept_lost_definitions=yes"])


def test_the_password_is_not_in_the_repr() -> None:
    assert "s3cret" not in repr(Config(default_pass="s3cret"))


def test_the_names_of_rabbitmqs_variables_count_too_but_less(tmp_path: Path) -> None:
    """WARREN_CONF__ wins over WARREN_, and that over RABBITMQ_."""
    main = write(tmp_path, "heartbeat = 1\nlisteners.tcp.1 = 1111", "rabbitmq.conf")
    (tmp_path / "conf.d").mkdir()
    more = write(tmp_path, "heartbeat = 2", "conf.d/10.conf")
    environment = {
        "RABBITMQ_CONFIG_FILE": str(tmp_path / "rabbitmq"),
        "RABBITMQ_CONFIG_FILES": str(tmp_path / "conf.d"),
        "RABBITMQ_NODENAME": "rabbit@there",
        "RABBITMQ_MNESIA_BASE": str(tmp_path / "mnesia"),
        "RABBITMQ_NODE_IP_ADDRESS": "::1",
        "RABBITMQ_NODE_PORT": "1000",
        "WARREN_NODE_PORT": "2000",
        "RABBITMQ_LOG_BASE": "/var/log/here",
        "RABBITMQ_LOGS": "a.log",
        "RABBITMQ_PID_FILE": "/run/w.pid",
        "RABBITMQ_DEFAULT_USER": "alice",
        "WARREN_DEFAULT_USER": "bob",
        "WARREN_CONF__default_user": "carol",
    }
    config = load(None, environment)
    assert config.config_files == (main, more)
    assert (config.broker.heartbeat, config.default_user) == (2, "carol")
    assert (config.node_name, config.data_dir) == (
        "rabbit@there",
        tmp_path / "mnesia" / "rabbit@there",
    )
    assert config.tcp_listeners == (("::1", 2000),)
    assert (config.log.directory, config.log.file) == (Path("/var/log/here"), Path("a.log"))
    assert config.pid_file == Path("/run/w.pid")
    quiet = load(None, {**environment, "WARREN_LOGS": "-"})
    assert (quiet.log.console, quiet.log.file) == (True, None)
    assert load(None, {**environment, "WARREN_DATA_DIR": "/d"}).data_dir == Path("/d")


def test_a_data_directory_of_rabbitmq_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema.DAT").touch()
    with pytest.raises(ConfigError, match=r"^RABBITMQ_MNESIA_DIR: .* data of a RabbitMQ node"):
        load(None, {"RABBITMQ_MNESIA_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("lines", "field", "value"),
    [
        ("listeners.tcp.10 = 3\nlisteners.tcp.b = 4\nlisteners.tcp.2 = 2", "tcp_listeners",
         (("", 2), ("", 3), ("", 4))),
        ("listeners.tcp = none\nlisteners.tcp.1 = 5", "tcp_listeners", ()),
        ("auth_mechanisms.2 = PLAIN\nauth_mechanisms.1 = EXTERNAL", "auth_mechanisms",
         ("EXTERNAL", "PLAIN")),
        ("default_user_tags.administrator = false\ndefault_user_tags.monitoring = true",
         "default_user_tags", ("monitoring",)),
        ("loopback_users = none\nloopback_users.bob = true", "loopback_users", frozenset()),
        ("loopback_users.bob = true\nloopback_users.al = true\nloopback_users.bob = false",
         "loopback_users", frozenset({"al"})),
        ("loopback_users.al = false", "loopback_users", frozenset()),
        ("disk_free_limit.relative = 0.5\ndisk_free_limit.absolute = 1GB",
         "disk_free_limit_absolute", -1),
        ("connection_max = infinity\nhandshake_timeout = infinity", "handshake_timeout_ms", 0),
        ("frame_max = 0", "frame_max", 0),
        ("log.file = false", "log", LogOptions()),
        ("log.channel.level = notice\nlog.connection.level = none", "log",
         LogOptions(levels=(("channel", "notice"), ("connection", "none")))),
    ],
)  # fmt: skip
def test_lists_and_pairs_of_keys_mean_what_they_mean_to_rabbitmq(
    tmp_path: Path, lines: str, field: str, value: object
) -> None:
    config = load(write(tmp_path, lines), {})
    assert getattr(config if hasattr(config, field) else config.broker, field) == value


def test_keys_without_effect_are_named_in_one_line_of_each_kind(tmp_path: Path) -> None:
    text = "management.disable_basic_auth = true\nstomp.listeners.tcp.1 = 61613\nraft.data_dir = x\nmirroring_sync_batch_size = 5"
    loaded = read_sources(Flags(write(tmp_path, text)), {})
    assert loaded.errors == []
    assert loaded.warnings == [
        "these keys are checked but wait for a later version of warren: management.disable_basic_auth, mirroring_sync_batch_size",
        "these keys are accepted without effect: stomp.listeners.tcp.1, raft.data_dir",
    ]
