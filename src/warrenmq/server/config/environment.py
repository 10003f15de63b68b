"""Environment variables as settings of keys.

Each variable has a name after `WARREN_`, and most have one after `RABBITMQ_` too. The `WARREN_`
form wins; a key after `WARREN_CONF__` wins over both. All other variables are ignored: a container
platform that runs a service called "warren" sets WARREN_PORT and WARREN_SERVICE_HOST.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

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
# A file that every data directory of RabbitMQ has.
_RABBITMQ_FILE: Final = "schema.DAT"


def config_files(environment: Mapping[str, str]) -> list[Path]:
    """The files that CONFIG_FILE and CONFIG_FILES name, in the order in which they are read."""
    paths: list[Path] = []
    for variable in ("CONFIG_FILE", "CONFIG_FILES"):
        _, value = find_variable(environment, variable)
        if value:
            path = Path(value)
            # RabbitMQ's variable may leave out the suffix.
            suffixed = path.with_name(f"{path.name}.conf")
            paths.append(suffixed if not path.exists() and suffixed.exists() else path)
    return paths


def environment_settings(environment: Mapping[str, str], errors: list[str]) -> list[Setting]:
    """The settings of the environment, weaker ones first; each fault adds a line to `errors`."""
    settings = []
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
    return settings


def find_variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """(variable, value) of the strongest form of `name`; the value is "" when none is set."""
    for prefix in _PREFIXES:
        if value := environment.get(prefix + name):
            return prefix + name, value
    return "", ""


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
