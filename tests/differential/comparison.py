"""Runs sequences on both brokers, compares them step by step, and shortens one that differs.

Where RabbitMQ leaves the outcome to chance, it differs from itself sooner or later. A sequence that
differs from warren's is therefore repeated, and counts as chance when RabbitMQ once does as warren.
In half of the repetitions RabbitMQ gets the messages of a burst one by one, and comes to rest after
each, so that its queues, which work side by side, take turns in another order.
"""

import time
from collections import Counter
from dataclasses import dataclass, field

from tests.differential.brokers import ComparedBroker, NeverAtRestError, Warren
from tests.differential.differences import ENDED_TOGETHER, intended, traits_of
from tests.differential.generator import PAUSE_MS, Generator
from tests.differential.station import CHANNELS, Station
from tests.differential.steps import Step, step

LOST = "a message that RabbitMQ gave to a consumer without acks of a connection that was ending"
ENDLESS = "dead letters that go from queue to queue for ever, in both brokers"
# Repetitions of a sequence that differs.
REPEATS = 6
# Runs, and time (s), that shortening a sequence may take.
SHRINK_RUNS_MAX = 400
SHRINK_S = 40.0


@dataclass
class Difference:
    """The first step of a sequence at which the brokers differ; `reason` is "" if unexplained."""

    number: int
    step: Step
    ours: list[str]
    theirs: list[str]
    reason: str = ""

    def __str__(self) -> str:
        lines = [f"step {self.number}: {self.step}"]
        lines += [f"    both     {line}" for line in self.ours if line in self.theirs]
        lines += [f"    warren   {line}" for line in self.ours if line not in self.theirs]
        lines += [f"    RabbitMQ {line}" for line in self.theirs if line not in self.ours]
        if sorted(self.ours) == sorted(self.theirs):
            lines += [f"    in order RabbitMQ {line}" for line in self.theirs]
        return "\n".join(lines)


@dataclass
class Report:
    """What a series of sequences has shown."""

    sequences: int = 0
    steps: int = 0
    # Sequences that an intended difference has ended, by its reason.
    intended: Counter[str] = field(default_factory=Counter)
    # Steps that show a harmless difference, by its reason.
    harmless: Counter[str] = field(default_factory=Counter)
    # Sequences whose outcome RabbitMQ leaves to chance.
    by_chance: int = 0
    # Steps by kind, and the ones that both brokers have refused.
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class Comparison:
    """Compares `ours` with `theirs`."""

    def __init__(self, ours: Warren, theirs: ComparedBroker) -> None:
        self.ours = ours
        self.theirs = theirs
        self.report = Report()

    def compare(self, seed: str) -> bool:
        """Run the sequence of a seed; False when it differs and nothing explains that."""
        generator = Generator(seed)
        steps = generator.steps()
        pause_ms = PAUSE_MS if generator.is_timed else 0
        self.report.sequences += 1
        difference = self.run(steps, pause_ms, self.report)
        if difference is None:
            return True
        if difference.reason:
            self.report.intended[difference.reason] += 1
            return True
        if any(
            self.run(steps, pause_ms, None, number % 2 == 1) is None for number in range(REPEATS)
        ):
            self.report.by_chance += 1
            return True
        steps = self._shrink(steps, pause_ms)
        story = [f"sequence {seed}, pause {pause_ms} ms:"]
        story += [f"    {number}: {step}" for number, step in enumerate(steps, 1)]
        found = self.run(steps, pause_ms)
        self.report.differences.append("\n".join([*story, str(found or difference)]))
        return False

    def run(
        self,
        steps: list[Step],
        pause_ms: int,
        report: Report | None = None,
        one_by_one: bool = False,
    ) -> Difference | None:
        """Run these steps, and then what shows the state they left; returns the first difference.

        Both brokers are empty before and after. `one_by_one`: `theirs` gets bursts in pieces.
        """
        ours, theirs = Station(self.ours, pause_ms), Station(self.theirs, pause_ms, one_by_one)
        try:
            traits = traits_of(steps)
            difference = self._run(steps, traits, ours, theirs, report)
            if difference is not None:
                return difference
            return self._run(ending(theirs), traits, ours, theirs, report)
        finally:
            for station in (ours, theirs):
                station.close()
                station.broker.sweep()

    def _run(
        self,
        steps: list[Step],
        traits: frozenset[str],
        ours: Station,
        theirs: Station,
        report: Report | None,
    ) -> Difference | None:
        for number, current in enumerate(steps, 1):
            try:
                left, right = ours.perform(current), theirs.perform(current)
            except NeverAtRestError as error:
                reason = "" if self.ours.is_at_rest() else ENDLESS
                return Difference(number, current, [], [str(error)], reason)
            if report is not None:
                report.steps += 1
                report.kinds[current.kind] += 1
                report.refused[current.kind] += any("Close(" in line for line in right)
            if left == right:
                continue
            reason = "" if not theirs.may_have_lost else LOST
            if theirs.ended_together:
                traits |= {ENDED_TOGETHER}
            known = intended(current, left, right, traits)
            if known is not None:
                if known.is_harmless:
                    if report is not None:
                        report.harmless[known.reason] += 1
                    continue
                reason = known.reason
            return Difference(number, current, left, right, reason)
        return None

    # -- a sequence that differs -------------------------------------------------------------------

    def _shrink(self, steps: list[Step], pause_ms: int) -> list[Step]:
        """The shortest sequence found that differs, each time it is run, without an explanation."""
        runs = 0
        deadline_s = time.monotonic() + SHRINK_S
        size = len(steps) // 2
        while size > 0:
            at = len(steps)
            is_shorter = False
            while at > 0 and runs < SHRINK_RUNS_MAX and time.monotonic() < deadline_s:
                at = max(0, at - size)
                shorter = steps[:at] + steps[at + size :]
                runs += 1
                if self._always_differs(shorter, pause_ms):
                    steps, is_shorter = shorter, True
                at = min(at, len(steps))
            if not is_shorter:
                size //= 2
        return steps

    def _always_differs(self, steps: list[Step], pause_ms: int) -> bool:
        found = [self.run(steps, pause_ms, None, one_by_one) for one_by_one in (False, True)]
        return all(difference is not None and not difference.reason for difference in found)


def ending(station: Station) -> list[Step]:
    """Steps that show what a sequence has left: counts, then all messages, then exchanges."""
    queues, exchanges = sorted(station.queues.items()), sorted(station.exchanges.items())
    return [
        *(step("QueueDeclare", channel, queue=name, passive=True) for name, channel in queues),
        *(step("CloseChannel", channel) for channel in CHANNELS),
        *(step("Drain", channel, queue=name) for name, channel in queues if name),
        *(
            step("ExchangeDeclare", channel, exchange=name, passive=True)
            for name, channel in exchanges
        ),
    ]
