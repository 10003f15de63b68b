"""The confirms of a channel in confirm mode, sent in as few frames as possible (P15).

A publish is decided when the broker knows whether it can confirm it. Confirms are sent in publish
order, many with one frame. A publish that is decided before an older one is confirmed on its own,
out of order. The exception is a publish that waits for nothing: it is decided at once, and a frame
for each of these would be expensive, so it is confirmed in order.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.counters import MessageCounters
from warrenmq.broker.flow.throttle import ThrottleHost
from warrenmq.broker.latencies import Latencies
from warrenmq.store.journal.confirm_run import ConfirmParty, ConfirmRun, ConfirmWaiter


class PublishConfirms(ConfirmWaiter):
    """Sends the confirms of channel `number` to `client`; counts them, and how long each took.

    Publishes are numbered as in AMQP: the first publish of a channel is 1.
    """

    def __init__(
        self, client: ThrottleHost, number: i64, counters: MessageCounters, latencies: Latencies
    ) -> None:
        self._client: ThrottleHost = client
        self._number: i64 = number
        self._counters: MessageCounters = counters
        self._latencies: Latencies = latencies
        self._publish_seq: i64 = 0
        self._confirmed_upto: i64 = 0
        # Undecided runs and all runs after the first undecided one, oldest first. Publishes that
        # are in no run wait for nothing.
        self._runs: list[ConfirmRun] = []
        # The newest run, the last of `_runs`; None while there is no run.
        self._newest: ConfirmRun | None = None
        # The channel is closed: no confirm is sent any more.
        self._is_ended: bool = False

    # -- publishes ---------------------------------------------------------------------------------

    def add(self, batch: ConfirmParty, is_for_disk: bool) -> None:
        """Add a publish that waits for the gathering `batch` if `is_for_disk`, else for nothing."""
        seq = self._publish_seq + 1
        self._publish_seq = seq
        young = self._newest
        if young is not None and young.party is batch:
            young.last = seq
        elif is_for_disk:
            run = ConfirmRun(self, seq, 1)
            run.party = batch
            batch.runs.append(run)
            self._append(run)
        elif young is not None:
            if young.parties_left == 0 and young.ok and not young.is_sent:
                young.last = seq
            else:
                self._append(ConfirmRun(self, seq, 0))

    def add_waiting(self, parties: list[ConfirmParty]) -> None:
        """Add a publish that waits for all of `parties` (at least one)."""
        self._publish_seq += 1
        run = ConfirmRun(self, self._publish_seq, len(parties))
        for party in parties:
            party.runs.append(run)
        self._append(run)

    def refuse(self) -> None:
        """Add a publish that the broker refuses; only this publish is nacked."""
        self._publish_seq += 1
        run = ConfirmRun(self, self._publish_seq, 0)
        run.ok = False
        self._append(run)
        self.on_decided(run)

    def _append(self, run: ConfirmRun) -> None:
        run.began_ns = self._latencies.now_ns
        self._runs.append(run)
        self._newest = run

    @property
    def unconfirmed_count(self) -> i64:
        """Publishes whose confirm is not sent yet."""
        count: i64 = self._publish_seq - self._confirmed_upto
        for run in self._runs:
            if run.is_sent:
                count -= run.last - run.first + 1
        return count

    # -- confirms ----------------------------------------------------------------------------------

    def on_decided(self, run: ConfirmRun) -> None:
        if run.is_sent:
            # Its confirm was sent with that of a run that was decided together with it.
            return
        if self._runs[0].parties_left == 0:
            self._tell_decided()
        if not run.is_sent:
            self._tell_alone(run)

    def confirm_finished(self) -> None:
        """Confirm publishes that wait for nothing; called once a turn, to batch the confirms."""
        if len(self._runs) == 0 or self._runs[0].parties_left == 0:
            self._tell_decided()

    def end(self) -> None:
        """Send no more confirms, because the channel is closed."""
        self._is_ended = True

    def _tell_decided(self) -> None:
        # Neighbouring runs with the same outcome share one frame.
        runs = self._runs
        count: i64 = 0
        upto = runs[0].first - 1 if len(runs) > 0 else self._publish_seq
        ok = True
        confirmed: i64 = 0
        while count < len(runs) and runs[count].parties_left == 0:
            run = runs[count]
            count += 1
            if run.is_sent:
                self._send(upto, ok)
                self._confirmed_upto = run.last
            elif run.ok != ok:
                self._send(upto, ok)
                ok = run.ok
            if run.ok and not run.is_sent:
                confirmed += run.last - run.first + 1
            run.is_sent = True
            upto = run.last
        if count == len(runs):
            self._newest = None
        self._send(upto, ok)
        if confirmed > 0:
            self._measure(runs[0], confirmed)
        del runs[:count]

    def _tell_alone(self, run: ConfirmRun) -> None:
        run.is_sent = True
        run.party = None
        if not self._is_ended:
            if run.ok:
                self._counters.confirmed += run.last - run.first + 1
                self._measure(run, run.last - run.first + 1)
            for seq in range(run.first, run.last + 1):
                self._client.out.confirm(self._number, seq, False, run.ok)
            self._client.touch()

    def _send(self, upto: i64, ok: bool) -> None:
        count = upto - self._confirmed_upto
        if count > 0:
            self._confirmed_upto = upto
            if not self._is_ended:
                if ok:
                    self._counters.confirmed += count
                self._client.out.confirm(self._number, upto, count > 1, ok)
                self._client.touch()

    def _measure(self, oldest: ConfirmRun, count: i64) -> None:
        """Note how long `count` publishes have waited: as long as the first one of `oldest`."""
        self._latencies.confirms.add(self._latencies.now_ns - oldest.began_ns, count)

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants that hold between two operations."""
        before = self._confirmed_upto
        assert before <= self._publish_seq
        for run in self._runs:
            assert before < run.first <= run.last <= self._publish_seq
            before = run.last
        if len(self._runs) > 0:
            assert self._newest is self._runs[-1] and before == self._publish_seq
        else:
            assert self._newest is None
