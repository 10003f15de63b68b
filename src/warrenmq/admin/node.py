"""The node as admin sessions see it: logins, vhosts and their reader groups.

There is one `AdminNode` per node. `recover` runs after start-up has given the journal's messages to
their queues and before the first client connects: it reserves again what the reader groups had
reserved. From then on each `AdminVhost` tells its vhost which entries the groups have reserved.
"""

import hmac
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from warrenmq.admin.changes.passed_sessions import PassedSessions
from warrenmq.admin.client.control_file import LOCAL_USER
from warrenmq.admin.clock import Clock
from warrenmq.admin.control.calls import ControlCalls
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.peers import Answer
from warrenmq.admin.definitions.administration import Administration
from warrenmq.admin.events.stream import EventStream
from warrenmq.admin.homes import locate
from warrenmq.admin.protocol.control import ControlRequest
from warrenmq.admin.protocol.figures import NodeStatus, QueueList, VhostStatus
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.admin.protocol.requests import BackupStatus, ErrorReply, LocalLogin, Login, Reply
from warrenmq.admin.protocol.routes import RouteTried, TryRoute
from warrenmq.admin.room_waits import RoomWaits
from warrenmq.admin.routes import try_route
from warrenmq.admin.sampling.ring import SampleRing
from warrenmq.admin.session_user import SessionUser
from warrenmq.admin.status import node_status, queue_status, vhost_status
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.login_attempts import ADMIN
from warrenmq.broker.definitions.login_guard import source_address
from warrenmq.broker.definitions.metadata import Change, PutGroupMember, PutReaderGroup
from warrenmq.broker.definitions.rights import Rights
from warrenmq.broker.vhost.sinks.staging import Staging
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.queue import Queue
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.queues.readers.groups import ReaderGroups
from warrenmq.vocabulary.error_codes import MOVED, UNREACHABLE
from warrenmq.vocabulary.names import name_text

if TYPE_CHECKING:
    from warrenmq.cluster.membership.control import ClusterControl

_log = logging.getLogger("warren.admin")


class AdminVhost:
    """One vhost with its reader groups."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self.readers = vhost.readers
        self.room_waits = RoomWaits()
        # Directory of the vhost's store; None = on no disk that other processes can read.
        self.directory: Path | None = None
        # Whether the vhost is deleted, or being deleted.
        self.is_deleted = False

    @property
    def name(self) -> bytes:
        """The vhost's name as clients know it."""
        return self._vhost.name

    @property
    def reader_groups(self) -> ReaderGroups:
        """The vhost's reader groups."""
        return self.readers.groups

    @property
    def store_id(self) -> bytes:
        """The store's id, with which the checksums of its records begin."""
        return self._vhost.store.store_id

    @property
    def staging(self) -> Staging:
        """The vhost's sinks and their stages."""
        return self._vhost.staging

    @property
    def max_message_size(self) -> int:
        """Largest message body (bytes) that the node accepts."""
        return self._vhost.node.settings.max_message_size

    def queue(self, name: bytes) -> Queue | None:
        """The queue called `name`, or None."""
        return self._vhost.queues.get(name)

    def expect_here(self, name: bytes, incarnation: int = 0) -> None:
        """Raise GroupError if another node serves the queue `name`, in this incarnation or any."""
        remote = self._vhost.remote_queues.get(name)
        if remote is not None and incarnation in (0, remote.definition.birth):
            raise GroupError(
                MOVED,
                f"queue '{name_text(name)}' is served by node {name_text(remote.home.name)}",
            )

    def expect_elsewhere(self, names: Iterable[bytes]) -> None:
        """Raise GroupError if this node serves one of the queues `names`.

        The asker takes another node for its home. It may have asked before the queue moved here,
        and would have the group leave it.
        """
        for name in names:
            if name in self._vhost.queues:
                raise GroupError(
                    MOVED, f"queue '{name_text(name)}' has moved to this node, and is served here"
                )

    def expect_served_here(self, incarnations: Iterable[int]) -> None:
        """Raise GroupError if another node serves one of the queues of these incarnations."""
        wanted = set(incarnations)
        for remote in self._vhost.remote_queues.values():
            if remote.definition.birth in wanted:
                self.expect_here(remote.name)

    def homes(self) -> list[tuple[bytes, bool, str]]:
        """The queues of all nodes: name, whether durable, and node, "" for this one."""
        found = [(queue.name, queue.durable, "") for queue in self._vhost.queues.values()]
        for remote in self._vhost.remote_queues.values():
            found.append((remote.name, remote.durable, name_text(remote.home.name)))
        return found

    def try_route(self, rights: Rights, request: TryRoute) -> RouteTried:
        """The queues of a message that nobody publishes. Raises GroupError."""
        return try_route(self._vhost, rights, request)

    def status(self) -> VhostStatus:
        """Figures of the vhost's store and reader groups."""
        return vhost_status(self._vhost, self.reader_groups)

    def queue_list(self, after: int, max_queues: int) -> QueueList:
        """Figures of the first `max_queues` queues, by id, with an id above `after`."""
        queues = [queue for queue in self._vhost.queues.values() if queue.id > after]
        queues.sort(key=lambda queue: queue.id)
        listed = [
            queue_status(queue, self.reader_groups.members_of(queue.ledger))
            for queue in queues[:max_queues]
        ]
        return QueueList(listed, len(queues) <= max_queues)

    def commit(
        self, changes: list[Change], done: Callable[[bool, int], None], is_kept: bool = False
    ) -> None:
        """Call `done(ok, now_ms)` when `changes` and all journal records so far are durable.

        Failed changes of the metadata are not retried, unless `is_kept`.
        """
        self._vhost.commit_with(changes, done, is_kept)

    def first_unacked_seq(self, queue: Queue, from_seq: int) -> int:
        """Lowest seq id >= `from_seq` that anybody but reader groups has unacked; -1 if none.

        Clients of other nodes have no channel here: what they have is found through their links.
        """
        found = self._vhost.host.find_unreserved(queue.ledger, from_seq, queue.next_seq)
        return min([int(entry.seq) for entry in found], default=-1)

    def takes_dead_letters(self, queue: Queue) -> bool:
        """Whether a rejected message of `queue` goes to an exchange that exists."""
        rule = queue.settings.dead_letters
        return rule is not None and rule.exchange in self._vhost.router.exchanges

    def has_dead_letters(self, queue: Queue, first: int, end: int) -> bool:
        """Whether dead letters of `queue` in [first, end) have not left it yet."""
        return self._vhost.delayed.handovers.has_between(queue.ledger, first, end)

    def queues_above(self, queue_id: int) -> list[Queue]:
        """Queues with ids above `queue_id`, in any order.

        Ids ascend, so new queues are the last ones in the dictionary.
        """
        found: list[Queue] = []
        for known_id in reversed(self._vhost.queues_by_id):
            if known_id <= queue_id:
                break
            found.append(self._vhost.queues_by_id[known_id])
        return found


@dataclass(frozen=True)
class LoginAnswer:
    """The user of a session, or one line that refuses it and reveals no more than AMQP's.

    The answer leaves after `wait_ms`, because logins like this one were refused before.
    """

    user: SessionUser | str
    wait_ms: int


class BackupRefused(Exception):
    """The node refuses to begin a backup; the text says why in one line."""


class BackupHost(Protocol):
    """Makes backups of the node, one at a time."""

    def start(self, target: str) -> None:
        """Begin a backup to the new directory `target`. Raises BackupRefused."""

    def status(self) -> BackupStatus:
        """Status of the last backup. Raises BackupRefused when there was none."""

    def cancel(self) -> None:
        """End the backup that is under way, if any, and remove its files."""


class AdminNode:
    """The vhosts of a broker, opened to users who may access them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._vhosts: dict[bytes, AdminVhost] = {}
        self._events = EventStream(broker)
        self._passed_sessions = PassedSessions()
        self._ring = SampleRing(broker)
        # Makes backups; None on a node without a disk.
        self.backups: BackupHost | None = None
        # Name of the node.
        self.name = ""
        # Directories of the vhosts' stores, by vhost id; the node keeps the dictionary up to date.
        self.directories: dict[int, Path] = {}
        # Changes definitions; None on a node that cannot.
        self.administration: Administration | None = None
        # Controls the node's process; None on a node that has none.
        self.control: ControlHost | None = None
        # The cluster of the node; None on one that runs alone.
        self.cluster: ClusterControl | None = None
        # The time of the broker in ms since 1970; None on a node without a clock of its own.
        self.now_ms: Callable[[], int] | None = None
        # The token of the control file; "" = no local logins.
        self.token = ""

    def status(self, only: AdminVhost | None) -> NodeStatus:
        """Status of the node and of all its vhosts, or of `only` one."""
        vhosts = self.all_vhosts() if only is None else [only]
        now_ms = None if self.now_ms is None else self.now_ms()
        return node_status(self._broker, self.name, [each.status() for each in vhosts], now_ms)

    def locate(self, vhost: AdminVhost, rights: Rights, request: LocateQueues) -> QueuesLocated:
        """Where queues live; see `homes.locate`."""
        return locate(vhost.homes(), self.name, self.cluster, rights, request)

    def publish_events(self, clock: Clock) -> None:
        """Publish the events of the node to its event exchanges from now on."""
        self._events.publish(clock)

    def recover(self, groups: list[PutReaderGroup], members: list[PutGroupMember]) -> None:
        """Restore all reader groups: all queues have their messages, no client is connected yet."""
        members_of: dict[tuple[bytes, bytes], list[PutGroupMember]] = {}
        for member in members:
            members_of.setdefault((member.vhost, member.group), []).append(member)
        for group in groups:
            vhost = self.vhost(group.vhost)
            if vhost is not None:
                vhost.readers.recover(group, members_of.get((group.vhost, group.name), []))

    def forget(self, vhost: Vhost) -> None:
        """Refuse the further requests of sessions in a vhost that is being deleted."""
        known = self._vhosts.pop(vhost.name, None)
        if known is not None:
            known.is_deleted = True

    def all_vhosts(self) -> list[AdminVhost]:
        """All vhosts by name."""
        found = [self.vhost(name) for name in sorted(self._broker.vhosts)]
        return [vhost for vhost in found if vhost is not None]

    def vhost(self, name: bytes) -> AdminVhost | None:
        """The vhost called `name`, or None."""
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            return None
        known = self._vhosts.get(name)
        if known is None:
            known = AdminVhost(vhost)
            known.directory = self.directories.get(vhost.id)
            self._vhosts[name] = known
        return known

    def log_in(
        self, login: Login | LocalLogin, peer: str, is_loopback: bool, now_ms: int
    ) -> LoginAnswer:
        """The answer to a login, and how long it has to wait.

        A vhost that the login names exists, and the user may enter it.
        """
        access = self._broker.access
        name = LOCAL_USER.encode() if isinstance(login, LocalLogin) else login.user.encode()
        address = source_address(peer)
        user = self._user(login, name, is_loopback)
        if isinstance(login, Login):
            access.attempts.count(ADMIN, address, name, isinstance(user, SessionUser))
        if isinstance(user, SessionUser):
            wait_ms = access.guard.on_success(address, name, now_ms)
            return LoginAnswer(self._in_vhost(user, login.vhost), wait_ms)
        wait_ms = access.guard.on_failure(address, name, now_ms)
        if access.guard.may_log(address, now_ms):
            self._broker.log_refused(peer, f"admin login of user '{name_text(name)}' refused")
        return LoginAnswer(user, wait_ms)

    def _user(self, login: Login | LocalLogin, name: bytes, is_loopback: bool) -> SessionUser | str:
        access = self._broker.access
        if isinstance(login, LocalLogin):
            if not self.token or not hmac.compare_digest(login.token.encode(), self.token.encode()):
                return "login was refused: the token is not the one in the node's control file"
            return SessionUser(access, name, True)
        if access.password_refusal(name, login.password.encode(), is_loopback):
            return (
                f"login of user '{login.user}' was refused: wrong name or password, or not "
                "allowed from this host"
            )
        return SessionUser(access, name, False)

    def _in_vhost(self, user: SessionUser, name: str) -> SessionUser | str:
        vhost = name.encode()
        if vhost and (vhost not in self._broker.vhosts or not user.may_enter(vhost)):
            return f"access to vhost '{name}' refused for user '{name_text(user.name)}'"
        return user

    def control_calls(
        self,
        user: SessionUser,
        clock: Clock,
        reply: Callable[[Reply], None],
        is_passed: bool = False,
    ) -> ControlCalls | None:
        """The control calls of a session, or of a request that another node has passed on.

        None on a node without administration.
        """
        if self.administration is None or self.control is None:
            return None
        return ControlCalls(
            self._broker,
            self.administration,
            self.control,
            self._events,
            self._passed_sessions,
            self._ring,
            user,
            clock,
            reply,
            self.cluster,
            is_passed,
        )

    def carry(
        self, user: bytes, request: ControlRequest, clock: Clock, reply: Callable[[Answer], None]
    ) -> None:
        """Carry out a request of `user` that another node has checked and passed on."""
        passed_user = SessionUser(self._broker.access, user, True)
        calls = self.control_calls(passed_user, clock, cast(Callable[[Reply], None], reply), True)
        if calls is None:
            reply(ErrorReply(UNREACHABLE, "the node is not ready yet"))
        else:
            calls.start(request)
