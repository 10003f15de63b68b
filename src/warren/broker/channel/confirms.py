"""The confirms of a channel in confirm mode: which publishes are decided, and in as few frames as possible (P15)."""

from __future__ import annotations

from mypy_extensions import i64

from warren.broker.flow.client_socket import ClientSocket
from warren.store.journal import ConfirmWaiter


class PublishConfirms(ConfirmWaiter):
    """Sends the confirms of channel `number` to `socket`. The channel increments `publish_seq` with each publish."""

    def __init__(self, socket: ClientSocket, number: i64) -> None:
        super().__init__()
        self._socket: ClientSocket = socket
        self._number: i64 = number
        self._confirmed_upto: i64 = 0
        # The channel is closed: nobody is told any more.
        self._is_ended: bool = False

    def on_durable(self, upto: i64, ok: bool) -> None:
        if not ok:
            self._send(upto, False)
        if self.batches_in_flight == 0:
            # Nothing of this channel is on its way to the disk: transient ones published since are done as well.
            self._send(self.publish_seq, True)
        elif ok:
            self._send(upto, True)

    def confirm_finished(self) -> None:
        """Confirm what does not wait for the disk; called once per turn, so that confirms are batched."""
        if self.batches_in_flight == 0:
            self._send(self.publish_seq, True)

    def check(self) -> None:
        """Assert what holds between two operations."""
        assert self._confirmed_upto <= self.publish_seq
        assert self.batches_in_flight >= 0

    def end(self) -> None:
        """The channel is closed."""
        self._is_ended = True

    def _send(self, upto: i64, ok: bool) -> None:
        count = upto - self._confirmed_upto
        if count > 0 and not self._is_ended:
            self._confirmed_upto = upto
            self._socket.out.confirm(self._number, upto, count > 1, ok)
            self._socket.touch()
