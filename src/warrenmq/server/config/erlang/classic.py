"""RabbitMQ's classic configuration (`rabbitmq.config`, `advanced.config`) as settings of keys.

    [{rabbit, [{tcp_listeners, [5672]}, {heartbeat, 30}]}].

Most parameters of the application `rabbit` have the name of a key; the table has the others. The
shape of a parameter that decides who gets in must be understood, or the start is refused. All other
parameters that have no key are named in a warning.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from warrenmq.server.config.erlang.terms import Atom, ErlangSyntaxError, Tuple, parse_term
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.lookup import find_key
from warrenmq.server.config.setting import Setting


class Pair(NamedTuple):
    """A key and its value as in rabbitmq.conf.

    `replaces` is the list that begins with this member: as in RabbitMQ, the list of a stronger
    source replaces that of a weaker one.
    """

    key: str
    value: str
    replaces: str = ""


Converter = Callable[[Any], Iterator[Pair]]

# Options of sockets that only Erlang has.
_ERLANG_SOCKET: Final = ("binary", "packet", "reuseaddr", "active", "mode")


class NoKeyError(Exception):
    """The parameter has no key."""


class _ShapeError(Exception):
    """The value has not the shape that the parameter must have."""


def classic_settings(
    path: Path, text: str, errors: list[str], warnings: list[str]
) -> list[Setting]:
    """The settings in a classic file.

    Faults add lines to `errors`, parameters without a key one line to `warnings`.
    """
    settings: list[Setting] = []
    without_key: list[str] = []
    try:
        for application, name, value, line in _parameters(parse_term(text)):
            where = f"{path}:{line}"
            try:
                settings += parameter_settings(where, application, name, value)
            except NoKeyError:
                without_key.append(f"{application}.{name}")
            except ConfigError as error:
                errors.append(f"{where}: {error}")
    except ErlangSyntaxError as error:
        errors.append(f"{path}:{error.line}: {error}")
    except _ShapeError:
        errors.append(f"{path}: expected [{{APPLICATION, [{{PARAMETER, VALUE}}, ...]}}, ...].")
    if without_key:
        warnings.append(f"{path}: these parameters have no effect: {', '.join(without_key)}")
    return settings


def parameter_settings(where: str, application: str, name: str, value: Any) -> list[Setting]:
    """The settings that a parameter of an Erlang application stands for.

    Raises NoKeyError when it has no key, and ConfigError for a value that is not understood.
    """
    convert = _TABLE.get((application, name))
    if convert is None:
        key = _key_of_same_name(application, name)
        if not _is_scalar(value):
            raise ConfigError(_not_understood(application, name, key))
        return [Setting(where, key, _text(value), is_literal=True)]
    try:
        return [
            Setting(where, pair.key, pair.value, is_literal=True, replaces=pair.replaces)
            for pair in convert(value)
        ]
    except _ShapeError:
        raise ConfigError(_not_understood(application, name, name)) from None


def _parameters(term: Any) -> Iterator[tuple[str, str, Any, int]]:
    """(application, parameter, value, line) of all parameters."""
    for application in _list(term):
        name, parameters = _pair(application)
        for parameter in _list(parameters):
            key, value = _pair(parameter)
            yield str(name), str(key), value, parameter.line


def _key_of_same_name(application: str, name: str) -> str:
    prefix = _PREFIXES.get(application)
    if prefix is None:
        raise NoKeyError
    try:
        find_key(prefix + name)
    except ConfigError:
        raise NoKeyError from None
    return prefix + name


def _not_understood(application: str, name: str, key: str) -> str:
    return (
        f"the value of {application}.{name} is not understood here; "
        f"write it in a file of rabbitmq.conf's format, as {key}"
    )


# -- shapes ----------------------------------------------------------------------------------------


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _ShapeError
    return value


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, Tuple) or len(value) != 2:
        raise _ShapeError
    return value[0], value[1]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def _text(value: Any) -> str:
    if not _is_scalar(value):
        raise _ShapeError
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# -- converters ------------------------------------------------------------------------------------


def _members(key: str) -> Converter:
    """Converter of a list whose members are numbered."""

    def convert(value: Any) -> Iterator[Pair]:
        for number, item in enumerate(_list(value), 1):
            yield Pair(f"{key}.{number}", _text(item), key if number == 1 else "")

    return convert


def _chosen(key: str) -> Converter:
    """Converter of a list of names."""

    def convert(value: Any) -> Iterator[Pair]:
        for number, item in enumerate(_list(value), 1):
            name = _text(item).replace(".", "\\.")
            yield Pair(f"{key}.{name}", "true", key if number == 1 else "")

    return convert


def _after_none(key: str, convert: Converter) -> Converter:
    """Converter of a list that replaces the list of weaker sources, also when it is empty."""

    def convert_all(value: Any) -> Iterator[Pair]:
        yield Pair(key, "none")
        yield from convert(value)

    return convert_all


def _addresses(key: str) -> Converter:
    def convert(value: Any) -> Iterator[Pair]:
        for number, item in enumerate(_list(value), 1):
            if isinstance(item, int):
                yield Pair(f"{key}.{number}", str(item))
            else:
                host, port = _pair(item)
                yield Pair(f"{key}.{number}", f"{_text(host)}:{_text(port)}")

    return convert


def _backends(value: Any) -> Iterator[Pair]:
    # Only one backend is available, so the list of a weaker source adds nothing.
    for number, item in enumerate(_list(value), 1):
        if isinstance(item, Tuple):
            authn, authz = _pair(item)
            yield Pair(f"auth_backends.{number}.authn", _text(authn))
            for backend in authz if isinstance(authz, list) else [authz]:
                yield Pair(f"auth_backends.{number}.authz", _text(backend))
        else:
            yield Pair(f"auth_backends.{number}", _text(item))


def _permissions(value: Any) -> Iterator[Pair]:
    names = ("configure", "write", "read")
    if len(_list(value)) != len(names):
        raise _ShapeError
    for name, pattern in zip(names, value, strict=True):
        yield Pair(f"default_permissions.{name}", _text(pattern))


def _memory_limit(value: Any) -> Iterator[Pair]:
    if isinstance(value, Tuple):
        form, limit = _pair(value)
        yield Pair(f"vm_memory_high_watermark.{_text(form)}", _text(limit))
    else:
        yield Pair("vm_memory_high_watermark.relative", _text(value))


def _disk_limit(value: Any) -> Iterator[Pair]:
    if isinstance(value, Tuple):
        form, limit = _pair(value)
        if form != "mem_relative":
            raise _ShapeError
        yield Pair("disk_free_limit.relative", _text(limit))
    else:
        yield Pair("disk_free_limit.absolute", _text(value))


def _tls_options(value: Any) -> Iterator[Pair]:
    for item in _list(value):
        name, option = _pair(item)
        if name in ("versions", "ciphers"):
            yield from _members(f"ssl_options.{name}")(option)
        else:
            yield Pair(f"ssl_options.{_text(name)}", _text(option))


def _socket_options(value: Any) -> Iterator[Pair]:
    for item in _list(value):
        if isinstance(item, Atom) and item in _ERLANG_SOCKET:
            continue
        name, option = _pair(item)
        if name == "linger":
            is_on, seconds = _pair(option)
            yield Pair("tcp_listen_options.linger.on", _text(is_on))
            yield Pair("tcp_listen_options.linger.timeout", _text(seconds))
        elif name not in _ERLANG_SOCKET:
            yield Pair(f"tcp_listen_options.{_text(name)}", _text(option))


def _group(key: str) -> Converter:
    """Converter of a list of pairs whose names are the last part of a key, or a group again."""

    def convert(value: Any) -> Iterator[Pair]:
        for item in _list(value):
            name, option = _pair(item)
            inner = f"{key}.{_text(name)}"
            if isinstance(option, list):
                yield from _group(inner)(option)
            else:
                yield Pair(inner, _text(option))

    return convert


def _cluster_nodes(value: Any) -> Iterator[Pair]:
    nodes = value[0] if isinstance(value, Tuple) and value else value
    yield from _members("cluster_formation.classic_config.nodes")(nodes)


# What the keys of an application begin with.
_PREFIXES: Final = {
    "rabbit": "",
    "rabbitmq_management": "management.",
    "rabbitmq_prometheus": "prometheus.",
}
_TABLE: Final[dict[tuple[str, str], Converter]] = {
    ("rabbit", "tcp_listeners"): _after_none("listeners.tcp", _addresses("listeners.tcp")),
    ("rabbit", "ssl_listeners"): _after_none("listeners.ssl", _addresses("listeners.ssl")),
    ("rabbit", "ssl_options"): _tls_options,
    ("rabbit", "tcp_listen_options"): _socket_options,
    ("rabbit", "loopback_users"): _after_none("loopback_users", _chosen("loopback_users")),
    ("rabbit", "default_user_tags"): _chosen("default_user_tags"),
    ("rabbit", "default_permissions"): _permissions,
    ("rabbit", "auth_mechanisms"): _members("auth_mechanisms"),
    ("rabbit", "auth_backends"): _backends,
    ("rabbit", "credential_validator"): _group("credential_validator"),
    ("rabbit", "definitions"): _group("definitions"),
    ("rabbit", "vm_memory_high_watermark"): _memory_limit,
    ("rabbit", "disk_free_limit"): _disk_limit,
    ("rabbit", "cluster_nodes"): _cluster_nodes,
    ("rabbitmq_management", "listener"): _group("management.listener"),
    ("rabbitmq_management", "tcp_config"): _group("management.tcp"),
    ("rabbitmq_management", "ssl_config"): _group("management.ssl"),
    ("rabbitmq_prometheus", "tcp_config"): _group("prometheus.tcp"),
    ("rabbitmq_prometheus", "ssl_config"): _group("prometheus.ssl"),
}
