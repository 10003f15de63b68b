"""RabbitMQ's files and variables: include, references, the classic format, erl arguments."""

from pathlib import Path

import pytest

from warrenmq.server.config.environment import WITHOUT_EFFECT
from warrenmq.server.config.erlang.terms import Binary, ErlangSyntaxError, parse_term
from warrenmq.server.config.load import Flags, Loaded, load, read_sources


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def read(path: Path, environment: dict[str, str] | None = None) -> Loaded:
    return read_sources(Flags(path), environment or {})


def errors_of(path: Path, environment: dict[str, str] | None = None) -> list[str]:
    """The faults, without the directory of `path`."""
    return [error.replace(f"{path.parent}/", "") for error in read(path, environment).errors]


# -- include ---------------------------------------------------------------------------------------


def test_included_files_stand_in_the_place_of_the_line(tmp_path: Path) -> None:
    write(tmp_path, "conf.d/20.conf", "heartbeat = 20")
    write(tmp_path, "conf.d/10.conf", "heartbeat = 10\nchannel_max = 10")
    main = write(
        tmp_path,
        "main.conf",
        "heartbeat = 1\nchannel_max = 1\ninclude conf.d/*.conf  # more\nchannel_max = 2",
    )
    loaded = read(main)
    assert (loaded.errors, loaded.config.broker.heartbeat, loaded.config.broker.channel_max) == (
        [],
        20,
        2,
    )
    assert [path.name for path in loaded.config.config_files] == ["main.conf", "10.conf", "20.conf"]
    assert loaded.in_force["heartbeat"].where == f"{tmp_path}/conf.d/20.conf:1"


def test_a_pattern_without_files_includes_nothing_but_a_missing_file_is_a_fault(
    tmp_path: Path,
) -> None:
    assert errors_of(write(tmp_path, "a.conf", "include none.d/*.conf")) == []
    assert errors_of(write(tmp_path, "b.conf", "include none.conf")) == [
        "none.conf: cannot be read: No such file or directory"
    ]


def test_a_file_cannot_include_itself(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conf", "include b.conf")
    write(tmp_path, "b.conf", "\ninclude *.conf")
    assert errors_of(path) == [
        "b.conf:2: include: a.conf includes itself",
        "b.conf:2: include: b.conf includes itself",
    ]


# -- references ------------------------------------------------------------------------------------


def test_a_reference_is_the_value_of_a_key_or_of_a_variable(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.conf",
        "default_pass = x$(default_user)-$(SECRET)\ndefault_user = bob\ndefault_vhost = '$(V)'",
    )
    config = read(path, {"SECRET": "s"}).config
    assert (config.default_pass, config.default_vhost) == ("xbob-s", "$(V)")


def test_a_reference_to_a_file_is_its_text(tmp_path: Path) -> None:
    write(tmp_path, "password", "a $(b)\n")
    assert read(write(tmp_path, "a.conf", "default_pass = $(<password)")).config.default_pass == (
        "a $(b)"
    )
    assert errors_of(write(tmp_path, "b.conf", "default_pass = $(<nothing)"))[0] == (
        "b.conf:1: default_pass: nothing: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "default_user = $(USER_NAME)",
            "default_user: $(USER_NAME) is neither a key of the configuration nor an environment variable",
        ),
        (
            "default_user = $(default_pass)\ndefault_pass = $(default_user)",
            "default_user: $(default_pass) refers to itself",
        ),
    ],
)
def test_a_reference_to_nothing_is_a_fault(tmp_path: Path, text: str, fault: str) -> None:
    assert errors_of(write(tmp_path, "a.conf", text))[0].endswith(fault)


# -- two names of the definitions ------------------------------------------------------------------


def test_the_management_key_loads_definitions(tmp_path: Path) -> None:
    definitions = write(tmp_path, "d.json", "{}")
    loaded = read(write(tmp_path, "a.conf", f"management.load_definitions = {definitions}"))
    assert (loaded.warnings, loaded.config.load_definitions) == ([], definitions)
    flag = read_sources(Flags(tmp_path / "a.conf", definitions=tmp_path), {})
    assert (flag.errors, flag.config.load_definitions) == ([], tmp_path)


def test_two_keys_with_different_definitions_are_refused(tmp_path: Path) -> None:
    text = "load_definitions = /etc/passwd\nmanagement.load_definitions = /etc/group"
    assert errors_of(write(tmp_path, "a.conf", text)) == [
        (
            "a.conf:2: management.load_definitions: a.conf:1 names other definitions; "
            "name one directory with all"
        )
    ]


def test_the_interface_of_node_links_is_not_ignored_in_a_cluster(tmp_path: Path) -> None:
    lines = "distribution.listener.interface = 127.0.0.1\n"
    assert errors_of(write(tmp_path, "a.conf", lines)) == []
    lines += "cluster.name = c\ncluster.etcd = http://127.0.0.1:2379\n"
    assert errors_of(write(tmp_path, "a.conf", lines)) == [
        "a.conf:1: distribution.listener.interface: has no effect; set cluster.listen = HOST:PORT"
    ]
    lines += "cluster.listen = 127.0.0.1:25672"
    assert errors_of(write(tmp_path, "a.conf", lines)) == []


# -- the classic format ----------------------------------------------------------------------------

CLASSIC = """
%% a classic file
[
  {rabbit, [
    {tcp_listeners, [5672, {"127.0.0.1", 5673}, {"::1", 5674}]},
    {ssl_listeners, []},
    {tcp_listen_options, [binary, {packet, raw}, {backlog, 256}, {linger, {true, 0}}]},
    {ssl_options, [{verify, verify_peer}, {depth, 3}, {versions, ['tlsv1.2', 'tlsv1.3']}]},
    {loopback_users, []},
    {default_user, <<"bob">>}, {default_pass, <<"$(x)">>},
    {default_user_tags, [management]},
    {default_permissions, [<<"^a">>, <<"^b">>, <<"^c">>]},
    {heartbeat, 30}, {frame_max, 262144}, {consumer_timeout, 3_600_000},
    {auth_mechanisms, ['PLAIN', 'EXTERNAL']},
    {auth_backends, [rabbit_auth_backend_internal]},
    {vm_memory_high_watermark, {absolute, "2GB"}},
    {disk_free_limit, {mem_relative, 1.5}},
    {log_levels, [{connection, info}]}
  ]},
  {rabbitmq_management, [{load_definitions, "/etc/passwd"}, {listener, [{port, 15672}]}]},
  {kernel, [{net_ticktime, 60}]}
].
"""


def test_a_classic_file_sets_the_same_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "rabbitmq.config", CLASSIC)
    loaded = read(path)
    config = loaded.config
    assert loaded.errors == []
    assert config.tcp_listeners == (("", 5672), ("127.0.0.1", 5673), ("::1", 5674))
    assert (config.tcp.backlog, config.tcp.linger, config.tcp.linger_timeout_s) == (256, True, 0)
    assert (config.tls.verify, config.tls.depth) == ("verify_peer", 3)
    assert config.tls.versions == ("tlsv1.2", "tlsv1.3")
    assert config.loopback_users == frozenset()
    assert (config.default_user, config.default_pass) == ("bob", "$(x)")
    assert (config.default_configure, config.default_write, config.default_read) == (
        "^a",
        "^b",
        "^c",
    )
    assert config.default_user_tags == ("management",)
    assert (
        config.broker.heartbeat,
        config.broker.frame_max,
        config.broker.consumer_timeout_ms,
    ) == (
        30,
        262144,
        3600000,
    )
    assert config.broker.auth_mechanisms == ("PLAIN", "EXTERNAL")
    assert config.broker.vm_memory_high_watermark_absolute == 2_000_000_000
    assert (config.broker.disk_free_limit_absolute, config.broker.disk_free_limit_relative) == (
        -1,
        1.5,
    )
    assert config.load_definitions == Path("/etc/passwd")
    assert config.management.tcp.port == 15672
    assert loaded.warnings == [
        f"{path}: these parameters have no effect: rabbit.log_levels, kernel.net_ticktime",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "[{rabbit,\n [{auth_backends, [rabbit_auth_backend_ldap]}]}].",
            "a.config:2: auth_backends.1: only internal is available, got 'rabbit_auth_backend_ldap'",
        ),
        (
            "[{rabbit, [{auth_backends, [{rabbit_auth_backend_ldap, rabbit_auth_backend_internal}]}]}].",
            "a.config:1: auth_backends.1.authn: only internal is available, got 'rabbit_auth_backend_ldap'",
        ),
        (
            "[{rabbit, [{definitions, [{import_backend, https}]}]}].",
            "a.config:1: definitions.import_backend: only local_filesystem is available, got 'https'",
        ),
        (
            "[{rabbit, [{loopback_users, guest}]}].",
            (
                "a.config:1: the value of rabbit.loopback_users is not understood here; "
                "write it in a file of rabbitmq.conf's format, as loopback_users"
            ),
        ),
        (
            "[{rabbit, [{ssl_options, [{verify_fun, {m, f}}]}]}].",
            (
                "a.config:1: the value of rabbit.ssl_options is not understood here; "
                "write it in a file of rabbitmq.conf's format, as ssl_options"
            ),
        ),
        (
            '[{rabbit, [{default_pass, {encrypted, <<"x">>}}]}].',
            (
                "a.config:1: the value of rabbit.default_pass is not understood here; "
                "write it in a file of rabbitmq.conf's format, as default_pass"
            ),
        ),
        (
            "[{rabbit, [{heartbeat, 30},\n ]}].",
            "a.config:2: a comma before the end of a list or tuple",
        ),
        ("[{rabbit, [{heartbeat, 30}]}", "a.config:1: expected ',', got the end"),
        # The fault names no text that may be a password.
        ('[{rabbit, [{default_pass "s3cret"}]}].', "a.config:1: expected ',', got one more string"),
        ("[{rabbit, [{heartbeat, 30}} ]}].", "a.config:1: expected ',', got '}'"),
        ("[{rabbit, ok}].", "a.config: expected [{APPLICATION, [{PARAMETER, VALUE}, ...]}, ...]."),
    ],
)
def test_faults_of_a_classic_file_name_the_line_and_the_key(
    tmp_path: Path, text: str, fault: str
) -> None:
    assert errors_of(write(tmp_path, "a.config", text)) == [fault]


def test_the_advanced_configuration_is_stronger_than_the_files(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        "rabbitmq.conf",
        "heartbeat = 1\nloopback_users.al = true\nvm_memory_high_watermark.relative = 0.5",
    )
    advanced = (
        '[{rabbit, [{heartbeat, 2}, {loopback_users, [<<"b.c">>]},'
        " {vm_memory_high_watermark, {absolute, 1000}}]}]."
    )
    write(tmp_path, "advanced.config", advanced)
    write(tmp_path, "other.config", "[{rabbit, [{heartbeat, 3}]}].")
    config = load(main, {})
    assert (config.broker.heartbeat, config.loopback_users) == (2, frozenset({"b.c"}))
    assert config.broker.vm_memory_high_watermark_absolute == 1000
    named = {"RABBITMQ_ADVANCED_CONFIG_FILE": str(tmp_path / "other")}
    assert load(main, named).broker.heartbeat == 3


def test_a_list_of_a_stronger_source_replaces_that_of_a_weaker_one(tmp_path: Path) -> None:
    """A mechanism that the advanced configuration leaves out lets nobody in."""
    main = write(
        tmp_path, "rabbitmq.conf", "auth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = AMQPLAIN"
    )
    write(tmp_path, "advanced.config", "[{rabbit, [{auth_mechanisms, ['EXTERNAL']}]}].")
    assert load(main, {}).broker.auth_mechanisms == ("EXTERNAL",)
    arguments = {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-rabbit auth_mechanisms \"['AMQPLAIN']\""}
    assert load(main, arguments).broker.auth_mechanisms == ("AMQPLAIN",)


def test_a_classic_file_counts_beside_one_of_the_new_format(tmp_path: Path) -> None:
    write(tmp_path, "r.conf", "heartbeat = 1")
    environment = {"RABBITMQ_CONFIG_FILE": str(tmp_path / "r")}
    assert load(None, environment).broker.heartbeat == 1
    write(tmp_path, "r.config", "[{rabbit, [{heartbeat, 2}]}].")
    assert load(None, environment).broker.heartbeat == 2


def test_terms_of_all_kinds() -> None:
    text = """#{a => <<"x"/utf8>>, 'B c' => "y" "z"}. % end"""
    assert parse_term(text) == {"a": "x", "B c": "yz"}
    assert isinstance(parse_term('<<"x">>'), Binary)
    assert parse_term("{-1, 2.5e3, $a, [], {}, true}") == (-1, 2500.0, 97, [], (), True)
    for wrong in ("", "[1 2]", "{1", "[1,]", "X", "[" * 1000, "a b", '"open'):
        with pytest.raises(ErlangSyntaxError):
            parse_term(wrong)


# -- variables -------------------------------------------------------------------------------------


def test_erl_arguments_set_parameters() -> None:
    arguments = (
        "-rabbit consumer_timeout 36000000 -rabbit heartbeat 7 +P 1048576 "
        "-rabbitmq_management load_definitions '\"/etc/passwd\"' -kernel net_ticktime 60 "
        "-rabbit log_levels [{connection,debug}]"
    )
    loaded = read_sources(Flags(), {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments})
    config = loaded.config
    assert (loaded.errors, config.broker.consumer_timeout_ms, config.broker.heartbeat) == (
        [],
        36000000,
        7,
    )
    assert config.load_definitions == Path("/etc/passwd")
    assert loaded.warnings == [
        (
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: these arguments have no effect: "
            "+P, -kernel, -rabbit log_levels"
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("-rabbit heartbeat x", "heartbeat: expected an integer, got 'x'"),
        ("-rabbit heartbeat [", "-rabbit heartbeat: the term has no end"),
        ("-rabbit heartbeat '", "No closing quotation"),
        (
            "-rabbit auth_backends [rabbit_auth_backend_ldap]",
            "auth_backends.1: only internal is available, got 'rabbit_auth_backend_ldap'",
        ),
    ],
)
def test_faults_of_erl_arguments_name_the_variable(arguments: str, fault: str) -> None:
    variable = "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"
    assert read_sources(Flags(), {variable: arguments}).errors == [f"{variable}: {fault}"]


def test_a_file_of_variables_is_weaker_than_the_environment(tmp_path: Path) -> None:
    text = """
# variables, with the prefix or without
NODENAME=rabbit@there
export RABBITMQ_NODE_PORT="5673"   # quoted
DEFAULT_USER='$x'
"""
    path = write(tmp_path, "rabbitmq-env.conf", text)
    environment = {"RABBITMQ_CONF_ENV_FILE": str(path), "RABBITMQ_NODENAME": "rabbit@here"}
    config = load(None, environment)
    assert (config.node_name, config.tcp_listeners) == ("rabbit@here", (("", 5673),))
    assert config.default_user == "$x"
    path.write_text('NODENAME="$(hostname)"\nif true; then\n')
    assert read_sources(Flags(), environment).errors == [
        f"{path}:1: expected NAME=VALUE without expansions",
        f"{path}:2: expected NAME=VALUE without expansions",
    ]


def test_names_and_passwords_may_come_from_files(tmp_path: Path) -> None:
    path = write(tmp_path, "password", "s3cret\n")
    assert load(None, {"RABBITMQ_DEFAULT_PASS_FILE": str(path)}).default_pass == "s3cret"
    assert read_sources(Flags(), {"RABBITMQ_DEFAULT_USER_FILE": "/nowhere"}).errors == [
        "RABBITMQ_DEFAULT_USER_FILE: /nowhere: cannot be read: No such file or directory"
    ]


def test_variables_without_effect_are_named() -> None:
    assert read_sources(Flags(), {"RABBITMQ_ENABLED_PLUGINS_FILE": "/p"}).warnings == [
        "these environment variables have no effect: RABBITMQ_ENABLED_PLUGINS_FILE"
    ]
    for name in WITHOUT_EFFECT:
        assert f"RABBITMQ_{name}" in read_sources(Flags(), {f"RABBITMQ_{name}": "1"}).warnings[0]
    # A container platform makes up such names for a service "rabbitmq", and clients read others.
    others = {"RABBITMQ_PORT": "tcp://10.0.0.1", "RABBITMQ_SERVICE_HOST": "x", "RABBITMQ_URL": "y"}
    assert read_sources(Flags(), others).warnings == []


def test_variables_of_old_images_that_set_tls_are_refused() -> None:
    assert read_sources(Flags(), {"RABBITMQ_SSL_CERTFILE": "/c"}).errors == [
        "RABBITMQ_SSL_CERTFILE: is not read; set ssl_options.certfile in the configuration file"
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":::5672", ("::", 5672)),
        ("::1:5672", ("::1", 5672)),
        ("2001:db8:0:0:0:0:0:1:5672", ("2001:db8:0:0:0:0:0:1", 5672)),
        ("[::1]:5672", ("::1", 5672)),
    ],
)
def test_the_port_follows_the_last_colon(text: str, address: tuple[str, int]) -> None:
    assert load(None, {}, [f"listeners.tcp.1={text}"]).tcp_listeners == (address,)
