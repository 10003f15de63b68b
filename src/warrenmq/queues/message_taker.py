"""The side of a queue that routed messages meet, whether the queue is here or on another node.

Routes, transactions, dead letters, delayed messages and sinks have lists of takers. `Queue` is a
taker whose messages are on this node, `RemoteQueue` one that passes them on to the queue's node.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Consumer, QueueEnd
from warrenmq.queues.settings import DeadLetterRule, QueueSettings
from warrenmq.store.journal.confirm_run import ConfirmParty
from warrenmq.store.model.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageTaker(QueueEnd):
    """A queue as a destination of messages.

    `definition` is the queue's declaration, `settings` what applies to it now.
    """

    def __init__(self, definition: QueueDefinition) -> None:
        super().__init__(definition.name)
        self.durable = definition.durable
        self.definition: QueueDefinition = definition
        self.settings: QueueSettings = definition.settings
        # The object that stands for the queue since its master has moved; None: this one does.
        self.replaced_by: MessageTaker | None = None

    def current(self) -> MessageTaker:
        """The object that stands for the queue at this moment."""
        taker = self
        while taker.replaced_by is not None:
            taker = taker.replaced_by
        return taker

    @property
    def is_deleted(self) -> bool:
        """Whether the queue was deleted."""
        raise RuntimeError("abstract")

    def apply(self, settings: QueueSettings) -> None:
        """Replace the settings."""
        raise RuntimeError("abstract")

    def publish(
        self,
        message: Message,
        expiration_ms: i64,
        now_ms: i64,
        is_known: bool = False,
        priority: i64 = 0,
        may_refuse: bool = True,
    ) -> bool:
        """Take a routed message; False: it is refused.

        `expiration_ms`: the message's own time to live (NO_LIMIT: none). `is_known`: a consumer may
        have had the message before, so it is marked redelivered. Without `may_refuse`, a limit that
        refuses messages does not count.
        """
        raise RuntimeError("abstract")

    def confirm_party(self, is_for_last: bool = False) -> ConfirmParty | None:
        """The party that must finish before the queue's last publish or settle counts as done.

        `is_for_last`: the caller wants to know about the last publish, not about several.
        None: the gathering batch of the vhost's journal, if a message is for the disk.
        """
        raise RuntimeError("abstract")

    def settle_stale(self, level: i64, seq: i64, epoch: i64, reason: i64, now_ms: i64) -> None:
        """Let a message go for `reason` that was delivered while another node was the master.

        `epoch`: the number of that master; a message from a later epoch stays. So does a message
        that is not ready: it is settled, or was delivered again.
        """
        raise RuntimeError("abstract")

    def on_stale_freed(self, consumer: Consumer) -> None:
        """Note that `consumer` has room again for a message that an earlier master delivered."""
        raise RuntimeError("abstract")

    def is_full_for(self, message: Message) -> bool:
        """Whether the queue has a limit that refuses `message` now, as far as this node knows."""
        raise RuntimeError("abstract")

    def refused_rule(self) -> DeadLetterRule | None:
        """Where messages go that the queue refuses; None: nowhere."""
        raise RuntimeError("abstract")

    def has_room(self) -> bool:
        """Whether few enough bytes of publishes are on their way to other nodes."""
        raise RuntimeError("abstract")

    def is_drained(self) -> bool:
        """Whether publishers that wait for room may go on."""
        raise RuntimeError("abstract")

    def is_behind(self, now_ms: i64) -> bool:
        """Whether messages pile up although consumers are being served at this moment."""
        raise RuntimeError("abstract")
