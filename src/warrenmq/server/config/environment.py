"""Environment variables as settings of keys.

Each variable has a name after `WARREN_`, and most have one after `RABBITMQ_` too. The `WARREN_`
form wins; a key after `WARREN_CONF__` wins over both. Variables that RabbitMQ reads and warren does
not are named in a warning. All others are ignored: a container platform that runs a service called
"warren" sets WARREN_PORT and WARREN_SERVICE_HOST.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from warrenmq.server.config.erlang.classic import NoKeyError, parameter_settings
from warrenmq.server.config.erlang.terms import ErlangSyntaxError, parse_term
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.node_name import default_node_name, node_name
from warrenmq.server.config.setting import Setting

# WARREN_CONF__loopback_users__guest=false sets loopback_users.guest.
CONF_PREFIX: Final = "WARREN_CONF__"
_PREFIXES: Final = ("WARREN_", "RABBITMQ_")
# Variables, without their prefix, that are other spellings of a key.
KEY_OF_VARIABLE: Final = {
    "NODENAME": "node_name",
    "DATA_DIR": "data_dir",
    "PID_FILE": "pid_file",
    "LOG_BASE": "log.dir",
    "DEFAULT_USER": "default_user",
    "DEFAULT_PASS": "default_pass",
    "DEFAULT_VHOST": "default_vhost",
}
# Variables, without their prefix, that name a file with the value of a key.
KEY_OF_FILE_VARIABLE: Final = {
    "DEFAULT_USER_FILE": "default_user",
    "DEFAULT_PASS_FILE": "default_pass",
}
# Arguments of the Erlang machine, which may set parameters of RabbitMQ.
_ERL_ARGUMENTS: Final = ("SERVER_ERL_ARGS", "SERVER_ADDITIONAL_ERL_ARGS", "SERVER_START_ARGS")
# Variables of RabbitMQ, its scripts and its container image that have no effect here.
WITHOUT_EFFECT: Final = (
    "ALLOW_INPUT", "CTL_DIST_PORT_MAX", "CTL_DIST_PORT_MIN", "CTL_ERL_ARGS", "DIST_PORT",
    "DISTRIBUTION_BUFFER_SIZE", "ENABLED_PLUGINS", "ENABLED_PLUGINS_FILE", "ERLANG_COOKIE",
    "FEATURE_FLAGS", "FEATURE_FLAGS_FILE", "GENERATED_CONFIG_DIR",
    "IO_THREAD_POOL_SIZE", "KEEP_PID_FILE_ON_EXIT", "LOG", "MAX_NUMBER_OF_ATOMS",
    "MAX_NUMBER_OF_PROCESSES", "MOTD_FILE", "PLUGINS_DIR", "PLUGINS_EXPAND_DIR", "PRODUCT_NAME",
    "PRODUCT_VERSION", "QUORUM_DIR", "SASL_LOGS", "SCHEDULER_BIND_TYPE", "SERVICENAME",
    "STREAM_DIR", "UPGRADE_LOG", "USE_LONGNAME",
)  # fmt: skip
# Variables of old container images, and the keys that newer images demand in their place.
_REPLACED: Final = {
    "SSL_CACERTFILE": "ssl_options.cacertfile",
    "SSL_CERTFILE": "ssl_options.certfile",
    "SSL_KEYFILE": "ssl_options.keyfile",
    "SSL_VERIFY": "ssl_options.verify",
    "SSL_FAIL_IF_NO_PEER_CERT": "ssl_options.fail_if_no_peer_cert",
    "SSL_DEPTH": "ssl_options.depth",
    "VM_MEMORY_HIGH_WATERMARK": "vm_memory_high_watermark.relative",
}
_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
# A file that every data directory of RabbitMQ has.
_RABBITMQ_FILE: Final = "schema.DAT"


def _argument_settings(
    variable: str, text: str, errors: list[str], warnings: list[str]
) -> list[Setting]:
    """The settings in arguments of the Erlang machine; faults go to `errors`.

    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS has the likes of `-rabbit consumer_timeout 36000000
    -rabbitmq_management load_definitions '"/etc/d.json"'` as its `text`. An argument that sets no
    parameter of RabbitMQ concerns Erlang alone, and is named in `warnings`.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        errors.append(f"{variable}: {error}")
        return []
    settings: list[Setting] = []
    without_key: list[str] = []
    while words:
        flag = words.pop(0)
        values = []
        while words and not _is_flag(words[0]):
            values.append(words.pop(0))
        application = flag.removeprefix("-")
        if not application.startswith("rabbit") or len(values) != 2:
            without_key.append(flag)
            continue
        try:
            term = parse_term(values[1])
            settings += parameter_settings(variable, application, values[0], term)
        except NoKeyError:
            without_key.append(f"{flag} {values[0]}")
        except (ErlangSyntaxError, ConfigError) as error:
            errors.append(f"{variable}: {flag} {values[0]}: {error}")
    if without_key:
        warnings.append(f"{variable}: these arguments have no effect: {', '.join(without_key)}")
    return settings


def _is_flag(word: str) -> bool:
    return word[:1] in ("-", "+") and not word[1:2].isdecimal()


def config_files(environment: Mapping[str, str]) -> list[Path]:
    """The files that CONFIG_FILE and CONFIG_FILES name, in the order in which they are read."""
    paths: list[Path] = []
    for variable in ("CONFIG_FILE", "CONFIG_FILES"):
        _, value = find_variable(environment, variable)
        if value:
            # As in RabbitMQ, the classic format counts when there are files of both formats.
            paths.append(_suffixed(Path(value), (".config", ".conf")))
    return paths


def advanced_file(environment: Mapping[str, str]) -> Path | None:
    """The file that ADVANCED_CONFIG_FILE names."""
    _, value = find_variable(environment, "ADVANCED_CONFIG_FILE")
    return _suffixed(Path(value), (".config",)) if value else None


def with_conf_env_file(environment: Mapping[str, str], errors: list[str]) -> Mapping[str, str]:
    """`environment` with the variables of the file that CONF_ENV_FILE names, which are weaker.

    The file is a shell script for RabbitMQ; only assignments of plain values are understood.
    """
    variable, value = find_variable(environment, "CONF_ENV_FILE")
    if not value:
        return environment
    try:
        lines = Path(value).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        errors.append(f"{variable}: {value}: cannot be read: {reason}")
        return environment
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        assignment = _ASSIGNMENT.fullmatch(text)
        words = _words(assignment[2]) if assignment is not None else None
        if assignment is None or words is None:
            errors.append(f"{value}:{number}: expected NAME=VALUE without expansions")
            continue
        # The file may leave out the prefix.
        name = assignment[1]
        prefixed = name if name.startswith(_PREFIXES) else f"RABBITMQ_{name}"
        found[prefixed] = words
    return {**found, **environment}


def environment_settings(
    environment: Mapping[str, str], errors: list[str], warnings: list[str]
) -> list[Setting]:
    """The settings of the environment, weaker ones first; each fault adds a line to `errors`.

    Variables of RabbitMQ that are not understood add a line to `warnings`.
    """
    settings: list[Setting] = []
    for name in _ERL_ARGUMENTS:
        variable, value = find_variable(environment, name)
        if value:
            # Imported only here: few nodes have such arguments.

            settings += _argument_settings(variable, value, errors, warnings)
    for name, key in KEY_OF_FILE_VARIABLE.items():
        variable, value = find_variable(environment, name)
        if value:
            settings += _content(variable, key, Path(value), errors)
    for name, key in KEY_OF_VARIABLE.items():
        variable, value = find_variable(environment, name)
        if value:
            settings.append(Setting(variable, key, value, is_alias=True))
    settings += _listener(environment)
    settings += _log(environment)
    try:
        settings += _data_dir(environment)
    except ConfigError as error:
        errors.append(str(error))
    for variable in sorted(environment):
        if variable.startswith(CONF_PREFIX):
            key = variable.removeprefix(CONF_PREFIX).replace("__", ".")
            settings.append(Setting(variable, key, environment[variable]))
    for name, key in _REPLACED.items():
        if variable := find_variable(environment, name)[0]:
            errors.append(f"{variable}: is not read; set {key} in the configuration file")
    ignored = [find_variable(environment, name)[0] for name in WITHOUT_EFFECT]
    if any(ignored):
        names = ", ".join(filter(None, ignored))
        warnings.append(f"these environment variables have no effect: {names}")
    return settings


def find_variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """(variable, value) of the strongest form of `name`; the value is "" when none is set."""
    for prefix in _PREFIXES:
        if value := environment.get(prefix + name):
            return prefix + name, value
    return "", ""


def _suffixed(path: Path, suffixes: tuple[str, ...]) -> Path:
    """`path`, or the first with a suffix that exists: RabbitMQ's variables may leave it out."""
    if path.exists():
        return path
    candidates = [path.with_name(path.name + suffix) for suffix in suffixes]
    return next((candidate for candidate in candidates if candidate.exists()), path)


def _words(text: str) -> str | None:
    """The value of an assignment in a shell script; None when only a shell could tell."""
    if re.search(r"[$`;&|<>()]", re.sub(r"'[^']*'", "", text)):
        return None
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return None
    return " ".join(words) if len(words) < 2 else None


def _content(variable: str, key: str, path: Path, errors: list[str]) -> list[Setting]:
    try:
        text = path.read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        errors.append(f"{variable}: {path}: cannot be read: {reason}")
        return []
    return [Setting(variable, key, text, is_alias=True, is_literal=True)]


def _listener(environment: Mapping[str, str]) -> list[Setting]:
    # The variables describe the only TCP listener, so they replace those of the files.
    host_variable, host = find_variable(environment, "NODE_IP_ADDRESS")
    port_variable, port = find_variable(environment, "NODE_PORT")
    if not host and not port:
        return []
    where = port_variable or host_variable
    name = f"[{host}]:" if ":" in host else f"{host}:" if host else ""
    return only_listener(where, f"{name}{port or 5672}")


def only_listener(where: str, address: str) -> list[Setting]:
    """Settings that replace all TCP listeners by `address`."""
    return [
        Setting(where, "listeners.tcp", "none", is_alias=True),
        Setting(where, "listeners.tcp.default", address, is_alias=True),
    ]


def _log(environment: Mapping[str, str]) -> list[Setting]:
    # `-` is the console, as for RabbitMQ; everything else is the name of the file.
    variable, value = find_variable(environment, "LOGS")
    if value == "-":
        return [Setting(variable, "log.console", "true"), Setting(variable, "log.file", "false")]
    return [Setting(variable, "log.file", value)] if value else []


def _data_dir(environment: Mapping[str, str]) -> list[Setting]:
    """The data directory of MNESIA_DIR, or of MNESIA_BASE and the node's name.

    Raises ConfigError when the directory is one of RabbitMQ's own, whose files warren cannot read.
    """
    if environment.get("WARREN_DATA_DIR"):
        return []
    variable, value = find_variable(environment, "MNESIA_DIR")
    if not value:
        variable, value = find_variable(environment, "MNESIA_BASE")
        if not value:
            return []
        name = find_variable(environment, "NODENAME")[1]
        value = str(Path(value) / (node_name(name) if name else default_node_name()))
    if (Path(value) / _RABBITMQ_FILE).exists():
        raise ConfigError(
            f"{variable}: {value} holds the data of a RabbitMQ node; set WARREN_DATA_DIR"
        )
    return [Setting(variable, "data_dir", value)]
