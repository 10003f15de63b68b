"""Each rule of the checker finds its violation, and says what, which message and when."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator import check_history
from simulator.checker.events import (
    CANCELLED,
    FORMAT,
    LOST,
    Ack,
    AnyEvent,
    Confirm,
    CopyMessage,
    CopyReport,
    Delivery,
    EpochConfirm,
    Event,
    FaultEnd,
    FaultStart,
    Header,
    MasterReport,
    Nack,
    Publish,
    PublishingEnd,
    QueueDrained,
    Requeue,
    Return,
    SessionEnd,
    SessionStart,
    SyncCall,
    SyncReply,
)
from simulator.checker.history import HistoryError, Recorder, read_history
from simulator.checker.verdict import judge
from simulator.checker.violation import Rule

# Milliseconds, a moment for each event: the tests write only what matters.
MS = 1000


def publish(at_ms: int, name: str, sequence: int = 0, session: str = "p-0") -> Publish:
    return Publish(at_ms * MS, name, session[:1], session, sequence, ("q",), 7)


def published(*names: str) -> list[AnyEvent]:
    """Messages published and confirmed in order, from 1 ms on."""
    events: list[AnyEvent] = []
    for number, name in enumerate(names):
        events += [publish(1 + number, name, number), Confirm((1 + number) * MS, name)]
    return events


def session(at_ms: int, name: str, prefetch: int = 1) -> SessionStart:
    return SessionStart(at_ms * MS, name, "q", "n", prefetch)


def delivery(at_ms: int, to: str, tag: int, name: str, redelivered: bool = False) -> Delivery:
    return Delivery(at_ms * MS, to, tag, name, redelivered, 7)


def settled(at_ms: int, of: str, tag: int) -> list[AnyEvent]:
    """An ack and a successful call behind it."""
    return [Ack(at_ms * MS, of, tag), SyncCall(at_ms * MS, of), SyncReply(at_ms * MS, of)]


def fault(at_ms: int, limit_ms: int | None = None, is_lone_crash: bool = False) -> FaultStart:
    return FaultStart(at_ms * MS, "kill 1", "kill", "n", limit_ms, is_lone_crash)


DRAINED = QueueDrained(900 * MS, "q")
COPY = CopyMessage(4, "m", 7, False)

VIOLATIONS: dict[str, tuple[Rule, list[AnyEvent], str]] = {
    "confirmed and gone": (
        Rule.LOST,
        published("m"),
        "rule 1, lost, queue q: confirmed and never delivered (m; at 0.000000 s, 0.000000 s)",
    ),
    "never published": (
        Rule.GHOST,
        [session(1, "c"), delivery(2, "c", 1, "x"), Ack(3 * MS, "c", 1)],
        "rule 2, ghost, queue q: delivered to c, never published (x; at 0.001000 s)",
    ),
    "another body": (
        Rule.GHOST,
        [*published("m"), session(1, "c"), Delivery(2 * MS, "c", 1, "m", False, 8), *settled(3, "c", 1)],
        "rule 2, ghost, queue q: delivered with another body than published",
    ),
    "another queue": (
        Rule.GHOST,
        [*published("m"), SessionStart(MS, "d", "other", "n", 1), session(1, "c"),
         delivery(2, "c", 1, "m"), *settled(3, "c", 1), delivery(2, "d", 1, "m"),
         QueueDrained(900 * MS, "other")],
        "rule 2, ghost, queue other: delivered, but published to q",
    ),
    "confirmed and nacked": (
        Rule.ANSWER,
        [*published("m"), Nack(2 * MS, "m")],
        "rule 3, answer: 1 confirms and 1 nacks (m; at 0.000000 s, 0.001000 s)",
    ),
    "confirmed twice": (
        Rule.ANSWER,
        [*published("m"), Confirm(2 * MS, "m"), session(1, "c"), delivery(2, "c", 1, "m"), *settled(3, "c", 1)],
        "rule 3, answer: 2 confirms and 0 nacks",
    ),
    "answered, never published": (
        Rule.ANSWER,
        [*published("m"), Confirm(2 * MS, "x"), session(1, "c"), delivery(2, "c", 1, "m"), *settled(3, "c", 1)],
        "rule 3, answer: answered, never published (x;",
    ),
    "returned and delivered": (
        Rule.ANSWER,
        [*published("m"), Return(2 * MS, "m", 312), session(1, "c"), delivery(2, "c", 1, "m"), *settled(3, "c", 1)],
        "rule 3, answer, queue q: returned as unroutable and delivered",
    ),
    "one consumer sees a publisher out of order": (
        Rule.ORDER,
        [*published("m", "n"), session(3, "c", 2), delivery(4, "c", 1, "n"), delivery(5, "c", 2, "m"),
         *settled(6, "c", 1), *settled(6, "c", 2)],
        "rule 4, order, queue q: messages overtook each other (m, n; at 0.004000 s, 0.003000 s)",
    ),
    "two consumers disagree": (
        # Each consumer agrees with both publishers, but there is no order for all four.
        Rule.ORDER,
        [publish(1, "a1", 1, "a-0"), publish(1, "a2", 2, "a-0"), publish(1, "b1", 1, "b-0"),
         publish(1, "b2", 2, "b-0"), session(3, "c", 2), session(3, "d", 2),
         delivery(4, "c", 1, "a2"), delivery(5, "c", 2, "b1"),
         delivery(4, "d", 1, "b2"), delivery(5, "d", 2, "a1")],
        "rule 4, order, queue q: messages overtook each other (a1, a2, b1, b2;",
    ),
    "again without the flag": (
        Rule.FLAG,
        [*published("m"), session(2, "c"), delivery(3, "c", 1, "m"), Requeue(4 * MS, "c", 1),
         delivery(5, "c", 2, "m"), *settled(6, "c", 2)],
        "rule 5, flag, queue q: came again without the redelivered flag, to c",
    ),
    "again without the flag, elsewhere and at once, without a fault": (
        Rule.FLAG,
        [*published("m"), session(2, "b"), SessionEnd(2 * MS, "b", LOST), session(2, "c"),
         session(2, "d"), delivery(3, "c", 1, "m", True), delivery(4, "d", 1, "m"),
         *settled(6, "c", 1), *settled(6, "d", 1)],
        "rule 5, flag, queue q: came again without the redelivered flag, to d",
    ),
    "again without the flag, long after a cut network was whole": (
        Rule.FLAG,
        [*published("m"), session(2, "b"), session(2, "c"), session(2, "d"),
         FaultStart(3 * MS, "isolate 1", "isolate", "n", keeps_packets=True),
         SessionEnd(3 * MS, "b", LOST), delivery(100, "c", 1, "m", True),
         FaultEnd(103 * MS, "isolate 1"), delivery(204, "d", 1, "m"),
         *settled(205, "c", 1), *settled(206, "d", 1)],
        "rule 5, flag, queue q: came again without the redelivered flag, to d",
    ),
    "flag on a fresh message": (
        Rule.FLAG,
        [*published("m"), session(2, "c"), delivery(3, "c", 1, "m", True), *settled(6, "c", 1)],
        "rule 5, flag, queue q: redelivered to c, but never handed out before",
    ),
    "flag on a message that was published after a lone crash": (
        Rule.FLAG,
        [*published("m"), fault(3, None, True), FaultEnd(4 * MS, "kill 1"), publish(5, "n", 4),
         session(7, "d", 2), delivery(7, "d", 1, "m", True), delivery(7, "d", 2, "n", True),
         *settled(8, "d", 1), *settled(8, "d", 2)],
        "rule 5, flag, queue q: redelivered to d, but never handed out before (n;",
    ),
    "a lone crash excuses its own queues only": (
        Rule.FLAG,
        [*published("m"), FaultStart(3 * MS, "kill 1", "kill", "n", None, True, ("other",)),
         FaultEnd(4 * MS, "kill 1"), session(205, "d"), delivery(206, "d", 1, "m", True),
         *settled(207, "d", 1)],
        "rule 5, flag, queue q: redelivered to d, but never handed out before (m;",
    ),
    "a lost connection hides no more than its prefetch": (
        Rule.FLAG,
        [*published("m", "n"), session(2, "b", 1), SessionEnd(3 * MS, "b", LOST), session(4, "c", 2),
         delivery(5, "c", 1, "m", True), delivery(5, "c", 2, "n", True),
         *settled(6, "c", 1), *settled(6, "c", 2)],
        "rule 5, flag, queue q: redelivered to c, but never handed out before (n;",
    ),
    "a settled message comes again": (
        Rule.AGAIN,
        [*published("m"), session(2, "c"), delivery(3, "c", 1, "m"), *settled(4, "c", 1),
         SessionEnd(5 * MS, "c", LOST), session(6, "d"), delivery(7, "d", 1, "m", True)],
        "rule 6, again, queue q: acked by c and delivered again to d (m; at 0.003000 s, 0.003000 s, 0.006000 s)",
    ),
    "a settled message comes again long before a fault": (
        Rule.AGAIN,
        [*published("m"), session(2, "c"), delivery(3, "c", 1, "m"), *settled(4, "c", 1),
         SessionEnd(5 * MS, "c", LOST), fault(200), session(206, "d"), delivery(207, "d", 1, "m", True)],
        "rule 6, again, queue q",
    ),
    "settled by the ack of another message": (
        Rule.SETTLED,
        [*published("m"), session(2, "c"), delivery(3, "c", 1, "m"), SessionEnd(4 * MS, "c", LOST)],
        "rule 7, settled, queue q: delivered, never acked, and gone (m; at 0.002000 s)",
    ),
    "two masters": (
        Rule.MASTER,
        [MasterReport(MS, "q", 3, "n1"), MasterReport(2 * MS, "q", 3, "n2")],
        "rule 8, master, queue q: epoch 3 has the masters n1 and n2 (at 0.001000 s)",
    ),
    "an old master confirms": (
        Rule.MASTER,
        [EpochConfirm(MS, "q", 3, "n1"), EpochConfirm(2 * MS, "q", 4, "n2"), EpochConfirm(3 * MS, "q", 3, "n1")],
        "rule 8, master, queue q: n1 confirmed in epoch 3 after epoch 4 had (at 0.002000 s)",
    ),
    "a copy with another flag": (
        Rule.COPIES,
        [CopyReport(MS, 1, "q", "n1", True, (COPY,)),
         CopyReport(MS, 1, "q", "n2", True, (CopyMessage(4, "m", 7, True),))],
        "rule 9, copies, queue q: n1 has CopyMessage(seq=4, message='m', crc=7, redelivered=False)",
    ),
    "a shorter copy": (
        Rule.COPIES,
        [CopyReport(MS, 1, "q", "n1", True, (COPY,)), CopyReport(MS, 1, "q", "n2", True, ())],
        "rule 9, copies, queue q: n1 has 1 messages, n2 has 0 (at 0.000000 s)",
    ),
    "a long gap": (
        Rule.GAP,
        [*published("l", "m"), fault(3, 500), publish(600, "n", 5), Confirm(600 * MS, "n"),
         PublishingEnd(601 * MS), session(602, "c", 9), delivery(603, "c", 1, "l"),
         delivery(603, "c", 2, "m"), delivery(603, "c", 3, "n"),
         *settled(604, "c", 1), *settled(604, "c", 2), *settled(604, "c", 3)],
        "rule 10, gap, queue q: no confirm for 597 ms after kill 1, limit 500 ms (at 0.002000 s, 0.599000 s)",
    ),
    "no confirm any more": (
        Rule.GAP,
        [*published("m"), fault(3, 500), publish(4, "x", 4), PublishingEnd(600 * MS),
         session(602, "c", 9), delivery(603, "c", 1, "m"), *settled(604, "c", 1)],
        "rule 10, gap, queue q: no confirm for 597 ms after kill 1, limit 500 ms",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, events, line = VIOLATIONS[name]
    verdict = judge([*events, DRAINED], 100)
    assert verdict.broken() == {rule}
    assert verdict.text().startswith(line), verdict.text()


EXCUSED: dict[str, list[AnyEvent]] = {
    "a delivery that a cut network has kept comes behind the next one": [
        *published("m"), session(2, "c"), session(2, "d"),
        FaultStart(3 * MS, "isolate 1", "isolate", "n", keeps_packets=True),
        delivery(500, "c", 1, "m", True), FaultEnd(503 * MS, "isolate 1"),
        delivery(900, "d", 1, "m"), *settled(901, "c", 1), *settled(902, "d", 1),
    ],
    "a delivery that was taken back is overtaken by the next one": [
        *published("m"), session(2, "c"), session(2, "d"), fault(3), FaultEnd(8 * MS, "kill 1"),
        delivery(4, "c", 1, "m", True), delivery(5, "d", 1, "m"),
        *settled(6, "c", 1), *settled(6, "d", 1),
    ],
    "an unanswered publish may appear or not": [
        publish(1, "m", 1), publish(1, "n", 2), session(2, "c"),
        delivery(3, "c", 1, "m"), *settled(4, "c", 1),
    ],
    "a nacked publish may appear": [
        publish(1, "m", 1), Nack(2 * MS, "m"), session(2, "c"), delivery(3, "c", 1, "m"),
        *settled(4, "c", 1),
    ],
    "a returned message is confirmed and gone": [
        publish(1, "m"), Return(2 * MS, "m", 312), Confirm(2 * MS, "m"),
    ],
    "a publisher that reconnects may be overtaken by itself": [
        publish(1, "m", 1, "p-0"), publish(2, "n", 2, "p-1"), session(3, "c", 2),
        delivery(4, "c", 1, "n"), delivery(5, "c", 2, "m"),
    ],
    "an ack just before a fault is undone": [
        *published("m"), session(2, "c"), delivery(3, "c", 1, "m"), *settled(4, "c", 1),
        fault(50), SessionEnd(50 * MS, "c", LOST), session(60, "d"), delivery(61, "d", 1, "m", True),
    ],
    "an ack without a call behind it proves nothing": [
        *published("m"), session(2, "c"), delivery(3, "c", 1, "m"), SyncCall(3 * MS, "c"),
        Ack(4 * MS, "c", 1), SyncReply(5 * MS, "c"), SessionEnd(5 * MS, "c", LOST),
        session(60, "d"), delivery(61, "d", 1, "m", True),
    ],
    "a lone crash loses and sets flags": [
        *published("m", "n"), session(2, "c"), delivery(3, "c", 1, "m"), fault(4, None, True),
        SessionEnd(5 * MS, "c", LOST), session(6, "d", 2), delivery(7, "d", 1, "m"),
        delivery(7, "d", 2, "n", True), *settled(8, "d", 1), *settled(8, "d", 2),
    ],
    "a lone crash may come a little after its fault began": [
        *published("m"), fault(3, None, True), publish(4, "n", 4), Confirm(4 * MS, "n"),
        FaultEnd(6 * MS, "kill 1"), session(7, "d", 2), delivery(7, "d", 1, "m", True),
        delivery(7, "d", 2, "n", True), *settled(8, "d", 1), *settled(8, "d", 2),
    ],
    "a lost connection may have been handed a message": [
        *published("m"), session(2, "b"), session(2, "c"), delivery(3, "c", 1, "m", True),
        *settled(4, "c", 1), SessionEnd(5 * MS, "b", LOST),
    ],
    "the broker knows of a cancelled consumer before the client": [
        *published("m"), session(2, "b"), session(2, "c"), delivery(3, "c", 1, "m", True),
        *settled(4, "c", 1), SessionEnd(5 * MS, "b", CANCELLED),
    ],
    "copies that are not in sync differ": [
        CopyReport(MS, 1, "q", "n1", True, (COPY,)), CopyReport(MS, 1, "q", "n2", False, ()),
        CopyReport(MS, 2, "q", "n2", True, ()),
    ],
    "confirms may be late if no fault began": [
        *published("m"), publish(700, "n", 2), session(701, "c", 2), delivery(702, "c", 1, "m"),
        delivery(702, "c", 2, "n"), *settled(703, "c", 1), *settled(703, "c", 2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", EXCUSED)
def test_what_is_right_is_not_blamed(name: str) -> None:
    verdict = judge([*EXCUSED[name], DRAINED], 100)
    assert verdict.is_clean, verdict.text()


def test_an_undone_ack_is_counted() -> None:
    verdict = judge([*EXCUSED["an ack just before a fault is undone"], DRAINED], 100)
    assert verdict.counts["acks undone by a fault"] == 1


def test_an_undrained_queue_is_not_clean() -> None:
    verdict = judge(published("m"))
    assert verdict.violations == []
    assert not verdict.is_clean
    assert "queue q was not drained" in verdict.text()


def test_each_fault_has_its_longest_gap() -> None:
    events: list[AnyEvent] = [
        *published("k", "l"),
        fault(100),
        publish(200, "m", 2),
        Confirm(200 * MS, "m"),
        FaultStart(300 * MS, "freeze 1", "freeze", "n2"),
        publish(310, "n", 3),
        Confirm(310 * MS, "n"),
        publish(330, "o", 4),
        Confirm(330 * MS, "o"),
        PublishingEnd(340 * MS),
    ]
    gaps = judge(events).gaps
    assert [(gap.fault.fault, gap.length_ms) for gap in gaps] == [
        ("kill 1", 100),
        ("freeze 1", 20),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [publish(1, "m"), publish(2, "m")],
        [session(1, "c"), session(2, "c")],
        [session(1, "c"), Ack(2 * MS, "c", 1)],
        [session(1, "c"), Requeue(2 * MS, "c", 1)],
        [SyncReply(2 * MS, "c")],
    ],
)
def test_a_history_that_contradicts_itself_is_refused(events: list[AnyEvent]) -> None:
    with pytest.raises(HistoryError):
        judge(events)


def write(path: Path, events: list[AnyEvent]) -> Path:
    recorder = Recorder(path)
    for event in events:
        recorder.record(event)
    recorder.close()
    return path


def test_a_history_comes_back_from_its_files(tmp_path: Path) -> None:
    """Files are merged by moments; a line that was cut off is left out."""
    of_clients = [event for _, events, _ in VIOLATIONS.values() for event in events]
    of_faults: list[Event] = [fault(2), FaultEnd(3 * MS, "kill 1")]
    paths = [write(tmp_path / "clients", of_clients), tmp_path / "faults"]
    recorder = Recorder(paths[1])
    for event in of_faults:
        recorder.record(event)
    recorder.flush()
    with paths[0].open("ab") as file:
        file.write(b'{"event":"conf')
    events = [event for event in read_history(paths) if not isinstance(event, Header)]
    recorder.close()
    key = lambda event: event.at_us  # noqa: E731  # said once, used twice
    assert events == sorted([*of_clients, *of_faults], key=key)


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history"
    for text, complaint in (
        (b"nonsense\n", "line 1"),
        (b'{"event":"publishing end","at_us":1}\n', "does not begin"),
        (b'{"event":"history","at_us":1,"format":%d,"wall_s":0}\n' % (FORMAT + 1), "has format"),
    ):
        path.write_bytes(text)
        with pytest.raises(HistoryError, match=complaint):
            read_history([path])


def test_the_command_judges_and_tells(tmp_path: Path) -> None:
    """Exit status 0, 1 and 2 for a clean, a broken and a missing history; `--message` tells all."""
    import typer

    command = typer.Typer()
    command.command()(check_history.main)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(command, arguments)
        return done.exit_code, done.output

    clean = write(tmp_path / "clean", [*EXCUSED["a nacked publish may appear"], DRAINED])
    broken = write(tmp_path / "broken", [*published("m"), DRAINED])
    assert run(str(clean)) == (0, "1 published, 1 nacked, 1 delivered\nclean\n")
    status, output = run(str(broken))
    assert (status, output.splitlines()[-1]) == (1, "1 violations")
    assert run(str(tmp_path / "none"))[0] == 2
    status, output = run(str(clean), "--message", "m")
    assert [line.split()[2].partition("(")[0] for line in output.splitlines()] == [
        "Publish",
        "Nack",
        "SessionStart",
        "Delivery",
        "Ack",
        "SyncCall",
        "SyncReply",
    ]
