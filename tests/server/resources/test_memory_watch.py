"""The memory watch finds total and used memory, and returns freed memory to the system."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.awaiting import eventually_in_loop
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.broker import Broker
from warrenmq.broker.flow.alarm_state import OFF
from warrenmq.server.resources import memory_watch
from warrenmq.server.resources.heap_release import HeapRelease
from warrenmq.server.resources.memory_watch import (
    QUIET_TRIM_BYTES,
    TRIM_INTERVAL_MS,
    UNKNOWN_TOTAL_BYTES,
    MemoryWatch,
    find_malloc_trim,
    total_memory_bytes,
)

MIB = 1 << 20


def machine(tmp_path: Path, group: str, limits: dict[str, str], total_kb: int = 8_000_000) -> int:
    """Return the total memory that is found on a machine with these control groups."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    groups.mkdir()
    (proc / "meminfo").write_text(f"MemTotal:       {total_kb} kB\nMemFree:        1 kB\n")
    (proc / "self" / "cgroup").write_text(group)
    for name, text in limits.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text + "\n")
    return total_memory_bytes(proc, groups)


TOTAL = 8_000_000 * 1024


@pytest.mark.parametrize(
    ("group", "limits", "expected"),
    [
        ("0::/\n", {}, TOTAL),
        ("0::/a/b\n", {"a/b/memory.max": "1000000000"}, 1_000_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "2000000000"}, 2_000_000_000),
        # In a container the path is the host's, and the root is the container's own group.
        ("0::/docker/xyz\n", {"memory.max": "3000000000"}, 3_000_000_000),
        ("0::/a\n", {"a/memory.max": "99000000000"}, TOTAL),
        (
            "3:cpu,cpuacct:/x\n4:memory:/y\n0::/\n",
            {
                "memory/y/memory.limit_in_bytes": "4000000000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            4_000_000_000,
        ),
        ("4:memory:/gone\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, TOTAL),
    ],
)
def test_all_memory_is_that_of_the_machine_or_of_the_control_group(
    tmp_path: Path, group: str, limits: dict[str, str], expected: int
) -> None:
    assert machine(tmp_path, group, limits) == expected


def test_nothing_known(tmp_path: Path) -> None:
    assert total_memory_bytes(tmp_path, tmp_path) == UNKNOWN_TOTAL_BYTES


# Runs in a process of its own, because leftovers of other tests, such as threads, change the
# memory.
RESIDENT = """
from warrenmq.server.resources.memory_watch import ResidentMemory

memory, mib = ResidentMemory(), 1 << 20
before = memory.used_bytes()
held = bytearray(64 * mib)
held[::4096] = b"x" * len(held[::4096])
assert 60 * mib < memory.used_bytes() - before < 70 * mib, memory.used_bytes() - before
memory.close()
"""


def test_used_memory_is_the_resident_set() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_allocator_can_be_told_to_give_back() -> None:
    find_malloc_trim()()


class Process:
    """A process with `used` and `freed` bytes set by the test; a trim returns the freed ones."""

    def __init__(self, used: int, freed: int) -> None:
        self.used = used
        self.freed = freed
        self.trims = 0
        self.looks = 0

    def used_bytes(self) -> int:
        self.looks += 1
        return self.used

    def trim(self) -> None:
        self.trims += 1
        self.used -= self.freed
        self.freed = 0


async def looked(process: Process, times: int) -> None:
    """Wait for `times` more measurements; the reaction to the last one may be outstanding."""
    wanted = process.looks + times
    await eventually_in_loop(lambda: process.looks >= wanted, "another look")


def watch(
    process: Process,
    script: Callable[[Broker], None],
    monkeypatch: pytest.MonkeyPatch,
    look_s: float = 0.001,
    look_closely_s: float = 0.001,
) -> Broker:
    """Run a watch with a limit of 1000 bytes; `script` runs after its first measurement."""
    broker = MemoryBroker().broker
    broker.set_vm_memory_high_watermark(1000, 0, 0)
    monkeypatch.setattr(memory_watch, "INTERVAL_S", look_s)
    monkeypatch.setattr(memory_watch, "CLOSE_INTERVAL_S", look_closely_s)

    async def look() -> None:
        watch = MemoryWatch(
            asyncio.get_running_loop(), broker, lambda: 5, process.used_bytes, process.trim, None
        )
        watch.start()
        script(broker)
        await looked(process, 20)
        watch.stop()

    asyncio.run(look())
    return broker


def test_a_small_process_gives_back_what_it_can_once_each_time_clients_fall_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(900, 500)
    broker = MemoryBroker().broker
    broker.set_vm_memory_high_watermark(1 << 40, 0, 0)
    monkeypatch.setattr(memory_watch, "INTERVAL_S", 0.01)

    async def look() -> None:
        watch = MemoryWatch(
            asyncio.get_running_loop(), broker, lambda: 5, process.used_bytes, process.trim, None
        )
        watch.start()
        await looked(process, 5)
        # No client has sent anything yet.
        assert process.trims == 0
        watch.received(1)
        await looked(process, 10)
        assert process.trims == 1
        process.used = QUIET_TRIM_BYTES + 1
        watch.received(1)
        await looked(process, 10)
        watch.stop()
        assert process.trims == 1

    asyncio.run(look())


def test_at_the_limit_freed_memory_is_given_back_before_there_is_an_alarm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(100, 0)

    def grow(_broker: Broker) -> None:
        process.used, process.freed = 1200, 500

    broker = watch(process, grow, monkeypatch)
    assert broker.alarms.memory_used_bytes == 700
    assert broker.alarms.memory_since_ms == OFF
    assert process.trims == 1


def test_over_the_limit_it_trims_once_in_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(1200, 0)
    # With the long interval the watch would not measure again.
    broker = watch(process, lambda _broker: None, monkeypatch, look_s=1000)
    assert broker.alarms.memory_since_ms == 5
    assert process.trims == 1


def test_far_from_the_limit_it_looks_at_leisure(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(799, 0)
    # The watch measures again, so it does not use the interval for a close limit.
    broker = watch(process, lambda _broker: None, monkeypatch, look_closely_s=1000)
    assert broker.alarms.memory_used_bytes == 799
    assert broker.alarms.memory_since_ms == OFF


def test_what_is_received_brings_the_next_look_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "INTERVAL_S", 100)
    process = Process(100 * MIB, 0)
    broker = MemoryBroker().broker
    broker.set_vm_memory_high_watermark(420 * MIB, 0, 0)
    looks: list[int] = []

    async def receive() -> None:
        watch = MemoryWatch(
            asyncio.get_running_loop(), broker, lambda: 5, process.used_bytes, process.trim, None
        )
        watch.start()
        for size, used in ((20, 200), (1, 300), (13, 400), (1, 412), (1, 415), (1, 421), (1, 421)):
            process.used = used * MIB
            watch.received(size * MIB)
            looks.append(broker.alarms.memory_used_bytes // MIB)
        # Over the limit the result comes after a trim of the allocator on another thread.
        await eventually_in_loop(
            lambda: broker.alarms.memory_used_bytes == 421 * MIB, "the last look"
        )
        watch.stop()

    asyncio.run(receive())
    # A measurement follows a sixteenth of the room: of 320 MiB, then of 120, then of 20 MiB, and at
    # last more than a MiB each time.
    assert looks == [100, 300, 400, 400, 415, 415, 415]
    assert broker.alarms.memory_since_ms == 5


class Release(HeapRelease):
    """Returns 1 MiB in each step, as long as the process has freed memory."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.begins = 0
        self.ends = 0

    def begin(self) -> None:
        self.begins += 1

    def step(self) -> bool:
        size = min(MIB, self.process.freed)
        self.process.freed -= size
        self.process.used -= size
        return self.process.freed > 0

    def end(self) -> None:
        self.ends += 1


class Leisure:
    """A watch far from its limit; `used`, `account` and `freed` in MiB; the test sets the time."""

    def __init__(self, used: int, account: int, freed: int = 0) -> None:
        self.process = Process(used * MIB, freed * MIB)
        self.release = Release(self.process)
        self.broker = MemoryBroker().broker
        self.broker.set_vm_memory_high_watermark(1 << 40, 0, 0)
        self.broker.memory_monitor.account.ram_bytes = account * MIB
        self.now_ms = 5
        self.watch: MemoryWatch | None = None

    async def look(self) -> int:
        """Let the watch measure a few times and finish releases; return how many releases began."""
        if self.watch is None:
            loop, process = asyncio.get_running_loop(), self.process
            self.watch = MemoryWatch(
                loop,
                self.broker,
                lambda: self.now_ms,
                process.used_bytes,
                process.trim,
                self.release,
            )
            self.watch.start()
        for _ in range(3):
            looks = self.process.looks
            while self.process.looks < looks + 3 or (
                self.release.begins > 0 and self.process.freed > 0
            ):
                await asyncio.sleep(0.001)
        return self.release.begins


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "INTERVAL_S", 0.001)
    monkeypatch.setattr(memory_watch, "RELEASE_PAUSE_S", 0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("used", "account", "begins"),
    [(600, 400, 1), (600, 472, 0), (600, 471, 0), (500, 371, 1), (2000, 1500, 0), (2000, 1499, 1)],
)
def test_what_is_free_is_given_back_when_it_is_much(used: int, account: int, begins: int) -> None:
    """Free memory is released when it exceeds 128 MiB and a quarter of the resident set."""

    async def script() -> None:
        leisure = Leisure(used, account, 10)
        assert await leisure.look() == begins
        assert leisure.process.used == (used - 10 * begins) * MIB
        assert leisure.watch is not None
        leisure.watch.stop()
        assert (leisure.process.trims, leisure.release.ends) == (0, 0)

    asyncio.run(script())


@pytest.mark.usefixtures("quick")
def test_what_could_not_be_given_back_is_not_looked_for_again() -> None:
    async def script() -> None:
        leisure = Leisure(600, 400)
        process = leisure.process
        assert await leisure.look() == 1
        leisure.now_ms += TRIM_INTERVAL_MS
        assert await leisure.look() == 1
        process.used += 128 * MIB
        assert await leisure.look() == 1
        process.used += 1
        assert await leisure.look() == 2
        # The next release waits for TRIM_INTERVAL_MS, whatever the amount.
        process.used += 1000 * MIB
        assert await leisure.look() == 2
        leisure.now_ms += TRIM_INTERVAL_MS - 1
        assert await leisure.look() == 2
        leisure.now_ms += 1
        assert await leisure.look() == 3
        # The unaccounted memory has shrunk: a later growth above it is new free memory.
        process.used = 410 * MIB
        leisure.now_ms += TRIM_INTERVAL_MS
        assert await leisure.look() == 3
        process.used = 550 * MIB
        assert await leisure.look() == 4

    asyncio.run(script())


@pytest.mark.usefixtures("quick")
def test_at_the_limit_there_is_no_leisure() -> None:
    """At the limit a release in steps ends, so that the allocator can trim the blocks it holds."""

    async def script() -> None:
        leisure = Leisure(100_000, 400, 50_000)
        looking = asyncio.ensure_future(leisure.look())
        while leisure.release.begins == 0:
            await asyncio.sleep(0)
        leisure.broker.set_vm_memory_high_watermark(1, 0, 0)
        while leisure.process.trims == 0:
            await asyncio.sleep(0)
        assert leisure.release.ends == 1
        looking.cancel()

    asyncio.run(script())


@pytest.mark.usefixtures("quick")
def test_a_watch_that_stops_leaves_nothing_half_done() -> None:
    async def script() -> None:
        leisure = Leisure(100_000, 400, 50_000)
        looking = asyncio.ensure_future(leisure.look())
        while leisure.release.begins == 0:
            await asyncio.sleep(0)
        assert leisure.watch is not None
        leisure.watch.stop()
        left = leisure.process.freed
        await asyncio.sleep(0.01)
        assert leisure.process.freed == left > 0
        assert leisure.release.ends == 1
        looking.cancel()

    asyncio.run(script())


# Runs in a process of its own, because leftovers of other tests in the heap would count too.
HOLES = """
from warrenmq.server.resources.heap_release import find_heap_release
from warrenmq.server.resources.memory_watch import ResidentMemory

release, memory, mib = find_heap_release(), ResidentMemory(), 1 << 20
if release is None:
    raise SystemExit("no glibc")
blocks = [b"%08d" % index * 1024 for index in range(12_000)]
for index in range(len(blocks)):
    if index % 3 > 0:
        blocks[index] = None
before = memory.used_bytes()
release.begin()
steps = 1
while release.step():
    steps += 1
# Of 64 MiB that were freed at least the pages that are wholly inside.
assert before - memory.used_bytes() > 32 * mib, before - memory.used_bytes()
assert steps > 3, steps
# Nobody else lost anything, and there is nothing more to be had.
assert all(block is None or block == b"%08d" % index * 1024 for index, block in enumerate(blocks))
after = memory.used_bytes()
release.begin()
release.step()
release.end()
assert not release.step()
assert abs(memory.used_bytes() - after) < 2 * mib, memory.used_bytes() - after
"""


def test_free_places_between_others_are_given_back_in_short_steps() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, timeout=60)
    if "no glibc" in done.stderr:
        pytest.skip("the allocator is not glibc's")
    assert done.returncode == 0, done.stderr
