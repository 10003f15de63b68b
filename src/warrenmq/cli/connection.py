"""Which node a command talks to: one definition of the options, for every command, and what they mean together.

A command with a parameter `node: Node` is decorated with `takes_node`, which puts the options in the parameter's place. The
node is named by `--uri`, or by `--host` and `--port`, or by the environment variable WARREN_URI; without any of them it is the
node of this machine. `--user`, `--password` and `--vhost` override what the URI says.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

import typer

from warrenmq.admin.client import (
    RETRY_TIMEOUT_S,
    URI_VARIABLE,
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.cli.output import fail

# The node of this machine, and the user that every new node has.
DEFAULT_URI: Final = "amqp://guest:guest@localhost:5672/"
_PANEL: Final = "Node"


class NamedBy(Enum):
    """Where a command has its node from."""

    OPTION = "option"
    ENVIRONMENT = "environment"
    DEFAULT = "default"


@dataclass(frozen=True)
class Node:
    """The node a command is for."""

    uri: str = field(repr=False)
    named_by: NamedBy
    # The vhost that --vhost names; None: the one of the URI.
    vhost_option: str | None = None
    # How long to wait for a node that does not answer; 0 for a command that does not wait.
    retry_timeout_s: float = 0.0

    @property
    def address(self) -> NodeAddress:
        """The URI, taken apart."""
        return NodeAddress(self.uri)

    @property
    def default_notice(self) -> str:
        """One line that says which node is taken when none was named; empty when one was."""
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
        help="The node: amqp://user:password@host:port/vhost. (default: amqp://guest@localhost:5672)",
    ),
    "host": _option(
        str | None,
        "--host",
        metavar="HOST",
        help="Instead of --uri: where the node listens. (default: localhost)",
    ),
    "port": _option(int | None, "--port", metavar="PORT", help="Its AMQP port. (default: 5672)"),
    "user": _option(str | None, "--user", metavar="NAME", help="Who asks. (default: guest)"),
    "password": _option(
        str | None,
        "--password",
        metavar="TEXT",
        envvar="WARREN_PASSWORD",
        help="Their password. (default: guest)",
    ),
    "vhost": _option(
        str | None, "--vhost", metavar="NAME", help="A vhost they may enter. (default: /)"
    ),
}
_RETRY_OPTION: Final[dict[str, Any]] = {
    "retry_timeout": _option(
        float,
        "--retry-timeout",
        metavar="SECONDS",
        min=0,
        help="How long to wait for a node that does not answer. (default: 120)",
        show_default=False,
    ),
}


def takes_node(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of a node in the place of its parameter `node`."""
    return _with_options(command, _NODE_OPTIONS)


def takes_node_and_waits(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `takes_node` and `--retry-timeout`, for a command that waits for a node."""
    return _with_options(command, _NODE_OPTIONS | _RETRY_OPTION)


def node_uri(
    uri: str | None,
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    vhost: str | None = None,
) -> str:
    """`uri`, or the default, with those of its parts that are given (any characters) replaced. Raises ValueError for what
    cannot be the URI of a node."""
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
    made = (
        f"amqp://{names[0]}:{names[1]}@{where}:{address.port if port is None else port}/{names[2]}"
    )
    NodeAddress(made)
    return made


@contextmanager
def node_client(node: Node, purpose: str) -> Iterator[AdminClient]:
    """A client for `purpose` (a command's name). When the node does not answer or refuses, the command ends with one line."""
    try:
        with AdminClient(node.address, purpose) as client:
            yield client
    except NodeUnreachableError as error:
        hint = (
            " (name another node with --uri or --host)" if node.named_by is NamedBy.DEFAULT else ""
        )
        fail(f"{error}{hint}")
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
    with_node.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions may have one, says inspect
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
    """ValueError when the options contradict each other, or name nothing that can be a node."""
    names_parts = host is not None or port is not None
    if names_parts:
        if _is_typed(context, "uri"):
            raise ValueError("name the node with --uri, or with --host and --port: one of them")
        # A variable is for commands that name no node.
        uri = None
    named_by = NamedBy.DEFAULT
    if names_parts or _is_typed(context, "uri"):
        named_by = NamedBy.OPTION
    elif uri:
        named_by = NamedBy.ENVIRONMENT
    try:
        if not _is_typed(context, "password") and _has_password(uri or ""):
            # The one in the URI belongs to its user.
            password = None
        made = node_uri(uri, host, port, user, password, vhost)
    except ValueError as error:
        source = URI_VARIABLE if named_by is NamedBy.ENVIRONMENT else "--uri"
        raise ValueError(f"{source}: {error}" if uri else str(error)) from None
    return Node(made, named_by, vhost, retry_timeout)


def _has_password(uri: str) -> bool:
    try:
        return urlsplit(uri).password is not None
    except ValueError:
        return False


def _is_typed(context: typer.Context, name: str) -> bool:
    """Does the command line say it, rather than the environment?"""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
