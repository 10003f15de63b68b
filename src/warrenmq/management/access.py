"""Who asks: FastAPI dependencies that give the caller of a request, or refuse it as RabbitMQ does.

The node checks each operation as well; the checks here give RabbitMQ's texts, and cover what a node
does not know of, such as a page that only administrators see.
"""

import base64
import binascii
from ipaddress import ip_address
from typing import Annotated, Final

from anyio import to_thread
from fastapi import Depends, Request

from warrenmq.admin.protocol.control import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER
from warrenmq.management.errors import (
    LoginRequired,
    NotAcceptable,
    login_failed,
    missing,
    not_authorised,
    not_found,
)
from warrenmq.management.login_gate import LoginGate
from warrenmq.management.sessions import Caller, Sessions

# Media types in `Accept` that allow a reply in JSON.
_JSON_TYPES: Final = frozenset({"*/*", "application/*", "application/json", "application/bert"})


async def management_user(request: Request) -> Caller:
    """A user who may use the API at all."""
    if request.method != "GET" and _is_of_another_site(request):
        # A browser would add the login it remembers to what another site makes it send.
        raise not_authorised("Requests of other sites are refused")
    caller = await logged_in(request, *_credentials(request.headers.get("authorization", "")))
    if request.scope["path"].startswith("/api/") and not _accepts_json(request):
        raise NotAcceptable
    return caller


async def logged_in(request: Request, user: str, password: str) -> Caller:
    """The user with this password, who must have the right to use the API. Raises HttpRefusal."""
    sessions: Sessions = request.app.state.sessions
    peer = request.client.host if request.client is not None else ""
    caller = Caller(sessions, user, password, peer)
    if sessions.knows(user, password):
        description = await to_thread.run_sync(lambda: caller.description)
    else:
        gate: LoginGate = request.app.state.login_gate
        description = await gate.run(peer, user, lambda: caller.description)
    if description.is_loopback_only and not _is_loopback(peer):
        raise login_failed("User can only log in via localhost")
    if not caller.has_tag(MANAGEMENT):
        raise not_authorised("Not management user")
    return caller


ManagementUser = Annotated[Caller, Depends(management_user)]


def policymaker(caller: ManagementUser) -> Caller:
    """A user who may set policies and parameters."""
    if not caller.has_tag(POLICYMAKER):
        raise not_authorised("User not authorised to access object")
    return caller


def monitor(caller: ManagementUser) -> Caller:
    """A user who sees the node and all that is in it."""
    if not caller.has_tag(MONITORING):
        raise not_authorised("Not monitor user")
    return caller


def administrator(caller: ManagementUser) -> Caller:
    """A user who may do everything."""
    if not caller.has_tag(ADMINISTRATOR):
        raise not_authorised("Not administrator user")
    return caller


Policymaker = Annotated[Caller, Depends(policymaker)]
Monitor = Annotated[Caller, Depends(monitor)]
Administrator = Annotated[Caller, Depends(administrator)]


def vhost_user(caller: ManagementUser, vhost: str) -> Caller:
    """A user with permissions in the vhost of the path, for what changes it."""
    if caller.may_enter(vhost):
        return caller
    if vhost in vhosts_seen(caller):
        raise not_authorised("User not authorised to access virtual host")
    raise (
        missing("vhost_not_found")
        if caller.has_tag(MONITORING)
        else not_authorised("User not authorised to access virtual host")
    )


def vhost_reader(caller: ManagementUser, vhost: str) -> Caller:
    """A user who sees the vhost of the path: one with permissions in it, or an administrator.

    A monitor sees what is in other vhosts in the lists of all vhosts only, as in RabbitMQ.
    """
    is_seen = vhost in vhosts_seen(caller)
    if is_seen and (caller.may_enter(vhost) or caller.has_tag(ADMINISTRATOR)):
        return caller
    if not is_seen and caller.has_tag(MONITORING):
        raise not_found()
    raise not_authorised("User not authorised to access virtual host")


def vhost_watcher(caller: ManagementUser, vhost: str) -> Caller:
    """A user who sees the limits of the vhost of the path: as its reader, or a monitor."""
    return caller if vhost in vhosts_seen(caller) else vhost_reader(caller, vhost)


VhostUser = Annotated[Caller, Depends(vhost_user)]
VhostReader = Annotated[Caller, Depends(vhost_reader)]
VhostWatcher = Annotated[Caller, Depends(vhost_watcher)]


def vhosts_seen(caller: Caller) -> list[str]:
    """The vhosts whose contents the caller sees: all for a monitor, else those it may enter."""
    if not caller.has_tag(MONITORING):
        return caller.description.vhosts
    return sorted([row["name"] for row in caller.rows("vhosts", ["name"])])


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise LoginRequired
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise login_failed() from None
    if not colon:
        raise login_failed()
    return user, password


def _is_of_another_site(request: Request) -> bool:
    origin = request.headers.get("origin")
    if origin is None or request.app.state.options.allows_origin(origin):
        return False
    return origin.partition("://")[2] != request.headers.get("host", "")


def _accepts_json(request: Request) -> bool:
    """Whether the client takes JSON; tools that prefer Erlang's format take it too."""
    accepted = request.headers.get("accept", "")
    types = [part.partition(";")[0].strip().lower() for part in accepted.split(",")]
    return not accepted or not _JSON_TYPES.isdisjoint(types)


def _is_loopback(peer: str) -> bool:
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
