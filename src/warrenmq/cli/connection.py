"""The options that name a command's node: one definition for all commands and how they combine.

The decorator `takes_node` replaces a command's parameter `node: Node` with these options. `--uri`,
or `--host` and `--port`, or else the environment variable WARREN_URI names the node; without any of
them it is this machine's node. `--user`, `--password` and `--vhost` override parts of the URI.

The node of this machine is the one that admin/client/local_node.py finds, as for `warrenctl`;
commands that only ask it something need no user there. Where no node is found, and for commands
that connect as AMQP clients, it is DEFAULT_URI.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import typer

from warrenmq.admin.client.client import (
    RETRY_TIMEOUT_S,
    URI_VARIABLE,
    AdminClient,
    AdminRefusedError,
    LocalAddress,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.client.control_file import ControlFileError
from warrenmq.admin.client.local_node import LocalNode, find_local_node
from warrenmq.cli.output import fail

# The node of this machine, with the user of every new node.
DEFAULT_URI: Final = "amqp://guest:guest@localhost:5672/"
_PANEL: Final = "Node"


class NamedBy(Enum):
    """The source that named a command's node."""

    OPTION = "option"
    ENVIRONMENT = "environment"
    DEFAULT = "default"


@dataclass(frozen=True)
class Node:
    """The node that a command talks to."""

    uri: str = field(repr=False)
    named_by: NamedBy
    # The vhost of --vhost; None = the one in the URI.
    vhost_option: str | None = None
    # The node of this machine, None if another one is named or none is found.
    local: LocalNode | None = None
    # Whether a user or a password is named: then the token of the control file does not count.
    names_user: bool = False
    # Why no node of this machine is found, else empty.
    not_found: str = ""
    # How long to retry when the node does not answer (s); 0 for a command that does not wait.
    retry_timeout_s: float = 0.0

    @property
    def address(self) -> NodeAddress:
        """The parsed URI."""
        return NodeAddress(self.uri)

    @property
    def admin_address(self) -> NodeAddress:
        """Where the node takes admin sessions, and the login there."""
        if self.local is None or self.names_user:
            return self.amqp_address
        return LocalAddress(self.local.control, self.address.vhost)

    @property
    def amqp_address(self) -> NodeAddress:
        """Where the node takes AMQP clients, with the user of the URI."""
        if self.local is None:
            return self.address
        host, _, port = self.local.control.address.rpartition(":")
        return NodeAddress(node_uri(self.uri, host=host, port=int(port)))

    @property
    def default_notice(self) -> str:
        """One line that says which node is used when none was named, else empty."""
        if self.named_by is not NamedBy.DEFAULT:
            return ""
        address = self.address
        return (
            f"no --uri, --host or {URI_VARIABLE}: taking the node at {address.where}, user {address.user}, "
            f"vhost {address.vhost}"
        )


def _option(annotation: Any, *names: str, **settings: Any) -> Any:
    return Annotated[annotation, typer.Option(*names, rich_help_panel=_PANEL, **settings)]


_NODE_OPTIONS: Final[dict[str, Any]] = {
    "uri": _option(
        str | None,
        "--uri",
        metavar="URI",
        envvar=URI_VARIABLE,
        help="The node: amqp[s]://user:password@host:port/vhost. (default: amqp://guest@localhost:5672)",
    ),
    "host": _option(
        str | None,
        "--host",
        metavar="HOST",
        help="The node's host, instead of --uri. (default: localhost)",
    ),
    "port": _option(
        int | None, "--port", metavar="PORT", help="The node's AMQP port. (default: 5672)"
    ),
    "user": _option(
        str | None, "--user", metavar="NAME", help="The user to log in as. (default: guest)"
    ),
    "password": _option(
        str | None,
        "--password",
        metavar="TEXT",
        envvar="WARREN_PASSWORD",
        help="The user's password. (default: guest)",
    ),
    "vhost": _option(
        str | None, "--vhost", metavar="NAME", help="A vhost that the user may access. (default: /)"
    ),
}
_RETRY_OPTION: Final[dict[str, Any]] = {
    "retry_timeout": _option(
        float,
        "--retry-timeout",
        metavar="SECONDS",
        min=0,
        help="How long to retry when the node does not answer. (default: 120)",
        show_default=False,
    ),
}


def takes_node(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options that name a node in place of its parameter `node`."""
    return _with_options(command, _NODE_OPTIONS)


def takes_node_and_waits(command: Callable[..., None]) -> Callable[..., None]:
    """Like `takes_node`, with `--retry-timeout`, for a command that waits for its node."""
    return _with_options(command, _NODE_OPTIONS | _RETRY_OPTION)


def node_uri(
    uri: str | None,
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    vhost: str | None = None,
) -> str:
    """`uri`, or the default one, with the given parts replaced; a part may have any characters.

    Raises ValueError when the result is no URI of a node.
    """
    base = uri or DEFAULT_URI
    address = NodeAddress(base)
    if all(part is None for part in (host, port, user, password, vhost)):
        return base
    host = address.host if host is None else host
    where = f"[{host}]" if ":" in host else host
    names = [
        quote(given if given is not None else known, "")
        for given, known in (
            (user, address.user),
            (password, address.password),
            (vhost, address.vhost),
        )
    ]
    parts = urlsplit(base)
    where = f"{where}:{address.port if port is None else port}"
    made = urlunsplit(
        (parts.scheme, f"{names[0]}:{names[1]}@{where}", f"/{names[2]}", parts.query, "")
    )
    NodeAddress(made)
    return made


@contextmanager
def node_client(node: Node, purpose: str) -> Iterator[AdminClient]:
    """A connected client for `purpose` (a command's name).

    When the node does not answer or refuses, the command ends with one line.
    """
    try:
        with AdminClient(node.admin_address, purpose) as client:
            yield client
    except NodeUnreachableError as error:
        tried = f", as {node.local.path} says" if node.local is not None else ""
        tried += f"; {node.not_found}" if node.not_found else ""
        hint = (
            " (name another node with --uri or --host)" if node.named_by is NamedBy.DEFAULT else ""
        )
        fail(f"{error}{tried}{hint}")
    except AdminRefusedError as error:
        fail(error)


def _with_options(command: Callable[..., None], options: dict[str, Any]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)

    def with_node(**values: Any) -> None:
        context: typer.Context = values.pop("_context")
        given = {name: values.pop(name) for name in options}
        try:
            node = _node(context, **given)
        except ValueError as error:
            fail(error)
        command(**values, node=node)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("_context", keyword, annotation=typer.Context)]
    for parameter in signature.parameters.values():
        if parameter.name != "node":
            parameters.append(parameter.replace(kind=keyword))
            continue
        for name, annotation in options.items():
            default = RETRY_TIMEOUT_S if name in _RETRY_OPTION else None
            parameters.append(
                inspect.Parameter(name, keyword, default=default, annotation=annotation)
            )
    with_node.__name__ = command.__name__
    with_node.__doc__ = command.__doc__
    with_node.__annotations__ = {each.name: each.annotation for each in parameters}
    # The inspect module lets functions have a __signature__, which typeshed does not know.
    shown = signature.replace(parameters=parameters)
    with_node.__signature__ = shown  # type: ignore[attr-defined]  # inspect reads it
    return with_node


def _node(
    context: typer.Context,
    uri: str | None,
    host: str | None,
    port: int | None,
    user: str | None,
    password: str | None,
    vhost: str | None,
    retry_timeout: float = 0.0,
) -> Node:
    """The node that the options name. ValueError when they conflict or name no possible node."""
    names_parts = host is not None or port is not None
    if names_parts:
        if _is_typed(context, "uri"):
            raise ValueError("name the node with --uri, or with --host and --port: one of them")
        # The environment variable is for commands that name no node.
        uri = None
    named_by = NamedBy.DEFAULT
    if names_parts or _is_typed(context, "uri"):
        named_by = NamedBy.OPTION
    elif uri:
        named_by = NamedBy.ENVIRONMENT
    try:
        if not _is_typed(context, "password") and _has_password(uri or ""):
            # The URI's password belongs to its user; the environment's does not override it.
            password = None
        made = node_uri(uri, host, port, user, password, vhost)
    except ValueError as error:
        source = URI_VARIABLE if named_by is NamedBy.ENVIRONMENT else "--uri"
        raise ValueError(f"{source}: {error}" if uri else str(error)) from None
    local, not_found = None, ""
    if named_by is NamedBy.DEFAULT:
        try:
            local = find_local_node()
        except ControlFileError as error:
            not_found = str(error)
    names_user = user is not None or password is not None
    return Node(made, named_by, vhost, local, names_user, not_found, retry_timeout)


def _has_password(uri: str) -> bool:
    try:
        return urlsplit(uri).password is not None
    except ValueError:
        return False


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether the command line sets `name`, rather than the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
