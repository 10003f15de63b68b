"""The picture of confirms shows every tenth of a second, and what was done when."""

from rich.console import Console

from demo.cluster.confirms import Confirms, Fault, confirms_of
from demo.cluster.picture import draw, gap_table
from simulator.checker.events import AnyEvent, Confirm, Publish, PublishingEnd

S = 1_000_000
NAMES = {"p0": "n1", "p1": "n2"}


def steady(*stretches: tuple[float, float]) -> list[int]:
    """A confirm each 50 ms of the stretches, which begin and end at seconds."""
    return [
        moment + 1
        for start, end in stretches
        for moment in range(int(start * S), int(end * S), S // 20)
    ]


CONFIRMS = Confirms({"p0": steady((0, 1), (2.5, 6)), "p1": steady((0, 1), (1.5, 6))}, 0, 6 * S)
FAULTS = [
    Fault("kill -9 n1", "back", True, 1 * S, 2 * S),
    Fault("stop n2", "back", False, int(3.8 * S), int(3.9 * S)),
]
EXPECTED = """
              ▼ kill -9 n1        stop n2 ▼
                        ▲ back        back ▲
 n1 ▅▅▅▅▅▅▅▅▅▅···············▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅
 n2 ▅▅▅▅▅▅▅▅▅▅·····▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅
    0 s                 2 s
 n1 ▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅
 n2 ▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅
    4 s
"""


def test_the_picture_goes_on_in_blocks() -> None:
    lines = [line.plain for line in draw(CONFIRMS, FAULTS, NAMES, 45)]
    assert lines == EXPECTED.splitlines()[1:]


def test_the_gap_of_a_fault_ends_with_the_next_one() -> None:
    console = Console(width=80)
    with console.capture() as printed:
        console.print(gap_table(CONFIRMS, FAULTS, NAMES))
    table = [line.split() for line in printed.get().splitlines()]
    assert table[1] == ["kill", "-9", "n1,", "the", "master", "0.50", "s", "1.50", "s", "0.50", "s"]
    assert table[2] == ["stop", "n2,", "a", "mirror", "0.05", "s", "0.05", "s", "0.05", "s"]


def test_confirms_count_until_publishing_ends() -> None:
    events: list[AnyEvent] = [
        Publish(10, "m1", "p0", "p0-0", 0, ("q",), 0),
        Publish(20, "m2", "p1", "p1-0", 0, ("q",), 0),
        Confirm(30, "m2"),
        PublishingEnd(40),
        Confirm(50, "m1"),
    ]
    assert confirms_of(events) == Confirms({"p0": [], "p1": [30]}, 10, 40)
