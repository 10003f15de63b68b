"""The calls of one session for what happens in the node: login counts, events, certificates."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.admin.clock import Clock, Timer
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.events.queue import EventQueue
from warrenmq.admin.events.stream import EventStream
from warrenmq.admin.protocol import watching
from warrenmq.admin.protocol.control import ControlReply, Done
from warrenmq.broker.broker import Broker
from warrenmq.vocabulary.error_codes import PRECONDITION


class WatchCalls:
    """Carries out the watch requests of a session; each is answered once, through `reply`."""

    def __init__(
        self,
        broker: Broker,
        control: ControlHost,
        events: EventStream,
        clock: Clock,
        reply: Callable[[ControlReply], None],
    ) -> None:
        self._attempts = broker.access.attempts
        self._control = control
        self._events = events
        self._clock = clock
        self._reply = reply
        self._queue: EventQueue | None = None
        # Ends the wait of a request for events.
        self._timer: Timer | None = None

    def start(self, request: watching.WatchRequest) -> None:
        """Carry out `request`. Raises Refusal."""
        match request:
            case watching.SetSourceTracking():
                self._attempts.is_tracking = request.is_on
            case watching.ResetLoginAttempts():
                self._attempts.reset()
            case watching.WatchEvents():
                self.stop()
                self._queue = EventQueue(frozenset(request.names), self._on_first)
                self._events.open(self._queue)
            case watching.NextEvents():
                self._next(request)
                return
            case watching.DescribeCertificates():
                self._reply(watching.Certificates(self._control.certificates()))
                return
            case watching.DescribeVariables():
                self._reply(watching.Variables(self._control.variables()))
                return
        self._reply(Done())

    def stop(self) -> None:
        """Watch no more events."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue is not None:
            self._events.close(self._queue)
            self._queue = None

    def _next(self, request: watching.NextEvents) -> None:
        if self._queue is None:
            raise Refusal(PRECONDITION, "the session watches no events")
        lines = self._queue.take()
        if lines or not request.wait_ms:
            self._reply(watching.Events(lines))
        else:
            self._timer = self._clock.call_later(request.wait_ms / 1000, self._answer)

    def _on_first(self) -> None:
        # The event comes from the midst of the change that caused it.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._clock.call_later(0, self._answer)

    def _answer(self) -> None:
        self._timer = None
        if self._queue is not None:
            self._reply(watching.Events(self._queue.take()))
