"""Finds the node of a command and talks to it over the admin protocol.

`--uri`, or `--data-dir`, or else WARREN_URI name the node. Without them it is the node of this
machine, which admin/client/local_node.py finds. `--node` says which node is expected there.
"""

import os
import socket
from contextlib import suppress
from typing import TypeVar

from warrenmq.admin.client.client import (
    URI_VARIABLE,
    AdminClient,
    AdminRefusedError,
    LocalAddress,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.client.control_file import ControlFileError
from warrenmq.admin.client.local_node import LocalNode, find_local_node
from warrenmq.admin.protocol.control import ControlStatus, DescribeControl
from warrenmq.admin.protocol.requests import Reply, Request
from warrenmq.cli.control.exits import BY_REFUSAL, DATA, UNAVAILABLE, USAGE, CommandError
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST

ReplyType = TypeVar("ReplyType", bound=Reply)


class NoNodeError(CommandError):
    """The command's node does not answer."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(
            f"Error: unable to perform an operation on node '{node}'. "
            "Please see diagnostics information and suggestions below.\n\n"
            "DIAGNOSTICS\n===========\n\n"
            f"{node}:\n  * {reason}\n"
            "  * suggestion: start the node, or name another one with --data-dir or --uri\n",
            UNAVAILABLE,
        )


class Link:
    """The node of a command; connects when it is first asked for something."""

    def __init__(self, node: str = "", data_dir: str = "", uri: str = "") -> None:
        self._expected = full_node_name(node)
        self._data_dir = data_dir
        self._uri = uri or ("" if data_dir else os.environ.get(URI_VARIABLE, ""))
        self._client: AdminClient | None = None
        self._name = ""
        self._local: LocalNode | None = None
        # Whether the command is a local administrator, who may do everything.
        self.is_local = not self._uri

    @property
    def node_name(self) -> str:
        """The name of the node. Raises CommandError when it does not answer."""
        self._connected()
        if not self._name:
            self._name = self.ask(DescribeControl(), ControlStatus).node
        return self._name

    @property
    def expected_name(self) -> str:
        """The name of the node as far as it is known without an answer."""
        if not self._name and not self._expected and self.is_local:
            with suppress(ControlFileError):
                return find_local_node(self._data_dir).control.node
        return self._name or self._expected or f"warren@{_host_name()}"

    def ask(self, request: Request, expected: type[ReplyType]) -> ReplyType:
        """Carry out `request`. Raises CommandError when the node refuses or does not answer."""
        try:
            return self._connected().request(request, expected)
        except AdminRefusedError as error:
            raise Refused(error) from None
        except NodeUnreachableError as error:
            raise NoNodeError(self.expected_name, str(error)) from None

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> AdminClient:
        if self._client is None:
            try:
                self._client = AdminClient(self._address(), "warrenctl")
            except NodeUnreachableError as error:
                where = "" if self._local is None else f", as {self._local.path} says"
                raise NoNodeError(self.expected_name, f"{error}{where}") from None
            except AdminRefusedError as error:
                raise CommandError(f"Error: {error.text}", UNAVAILABLE) from None
        return self._client

    def _address(self) -> NodeAddress:
        if self._uri:
            try:
                return NodeAddress(self._uri)
            except ValueError as error:
                raise CommandError(f"Error: --uri: {error}", USAGE) from None
        try:
            self._local = find_local_node(self._data_dir)
        except ControlFileError as error:
            raise NoNodeError(self.expected_name, str(error)) from None
        control = self._local.control
        if self._expected and control.node != self._expected:
            raise NoNodeError(self._expected, f"the node here is {control.node}")
        self._name = control.node
        return LocalAddress(control)


class Refused(CommandError):
    """The node refused a request; `refusal` is the protocol's code, `reason` its text."""

    def __init__(self, error: AdminRefusedError) -> None:
        self.refusal = error.code
        self.reason = error.text
        if error.code == NO_SUCH_VHOST:
            super().__init__(error.text.replace('"', "'"), DATA)
        else:
            super().__init__(f"Error:\n{error.text}", BY_REFUSAL.get(error.code, UNAVAILABLE))


def full_node_name(name: str) -> str:
    """`name` with the host of this machine if it has none; "" stays empty."""
    return name if not name or "@" in name else f"{name}@{_host_name()}"


def _host_name() -> str:
    return socket.gethostname().partition(".")[0] or "localhost"
