"""The key-value store of one machine answers as etcd does, whatever is asked in whatever order."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.etcd import EtcdServer
from tests.support.key_store import served_key_store
from warrenmq.cluster.metadata.errors import EtcdRefused
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import (
    Compare,
    Event,
    KeyValue,
    Operation,
    RawDelete,
    RawGet,
    RawPut,
    TxnResult,
    end_of,
)
from warrenmq.cluster.metadata.watching import StopSignal

NAMES = st.sampled_from([b"a", b"ab", b"b", b"c"])
# Longer than the test: a lease that ends makes revisions that the steps do not.
LEASE_S = 3600
# Of two leases; 0 is none.
LEASES = st.integers(0, 2)
VALUES = st.sampled_from([b"", b"x", b"y"])
RANGES = st.one_of(st.tuples(NAMES, st.just(b"")), st.tuples(NAMES, NAMES.map(end_of)))
RESULTS = st.sampled_from(["EQUAL", "GREATER", "LESS"])
COMPARES = st.one_of(
    # Revisions are those of so many transactions ago.
    st.builds(
        lambda keys, target, result, ago: (keys, target, result, ago),
        RANGES, st.sampled_from(["CREATE", "MOD"]), RESULTS, st.integers(0, 5),
    ),
    st.tuples(RANGES, st.just("VALUE"), RESULTS, VALUES),
)  # fmt: skip
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), NAMES, VALUES, LEASES),
    st.tuples(st.just("delete"), RANGES),
    st.tuples(st.just("get"), NAMES),
)
STEPS = st.one_of(
    st.tuples(
        st.just("txn"), st.lists(COMPARES, max_size=2), st.lists(OPERATIONS, max_size=4),
        st.lists(OPERATIONS, max_size=2),
    ),
    st.tuples(st.just("revoke"), st.integers(1, 2)),
)  # fmt: skip


class Tried:
    """A store under a prefix of its own; revisions and leases are told as those of this test."""

    def __init__(self, gateway: EtcdGateway, prefix: bytes) -> None:
        self.gateway = gateway
        self._prefix = prefix
        self.first = gateway.transact([], [RawPut(prefix + b"zz", b"")]).revision
        self._leases = [0, *[gateway.grant(LEASE_S) for _ in range(2)]]

    def carry_out(self, step: tuple[Any, ...]) -> object:
        """What the step gives, or the error that it is."""
        if step[0] == "revoke":
            self.gateway.revoke(self._leases[step[1]])
            return None
        newest = self.gateway.revision(self._prefix)
        compares = [self._compare(newest, *each) for each in step[1]]
        then, otherwise = ([self._operation(each) for each in branch] for branch in step[2:])
        try:
            return self._told(self.gateway.transact(compares, then, otherwise))
        except EtcdRefused as error:
            return type(error)

    def state(self, ago: int = 0) -> list[KeyValue]:
        """All keys, as of so many revisions ago."""
        revision = self.gateway.revision(self._prefix)
        found, _ = self.gateway.read_range(self._prefix, max(self.first, revision - ago), page=2)
        return [self.key(each) for each in found]

    def events(self) -> list[Event]:
        """All that has happened to the keys, as a watch tells it."""
        told: list[Event] = []
        stop = StopSignal()
        self.gateway.transact([], [RawPut(self._prefix + b"zz", b"end")])

        def on_events(revision: int, events: list[Event]) -> None:
            told.extend(Event(self.key(each.kv), each.type) for each in events)
            if told[-1].kv.value == b"end":
                threading.Thread(target=stop.set).start()

        self.gateway.watch(self._prefix, self.first, on_events, stop)
        return told

    def key(self, found: KeyValue) -> KeyValue:
        return KeyValue(
            found.key.removeprefix(self._prefix),
            found.value,
            self._since(found.create_revision),
            self._since(found.mod_revision),
            self._leases.index(found.lease),
        )

    def _since(self, revision: int) -> int:
        # A deleted key has no create revision.
        return revision - self.first if revision else -1

    def _told(self, result: TxnResult) -> tuple[Any, ...]:
        responses = [
            ([self.key(each) for each in response.found], response.deleted_count)
            for response in result.responses
        ]
        return result.succeeded, result.revision - self.first, responses

    def _compare(
        self, newest: int, keys: tuple[bytes, bytes], target: Any, result: Any, operand: int | bytes
    ) -> Compare:
        start, end = (self._prefix + each if each else b"" for each in keys)
        if isinstance(operand, int):
            operand = newest - operand
        return Compare(start, target, result, operand, end)

    def _operation(self, given: tuple[Any, ...]) -> Operation:
        match given:
            case ("put", name, value, lease):
                return RawPut(self._prefix + name, value, self._leases[lease])
            case ("delete", (start, end)):
                return RawDelete(self._prefix + start, self._prefix + end if end else b"")
        return RawGet(self._prefix + given[1])


@pytest.fixture(scope="module")
def gateways(
    etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[EtcdGateway, EtcdGateway]]:
    """Clients of a real etcd, and of warren's own store."""
    path: Path = tmp_path_factory.mktemp("same") / "keys.sqlite"
    with served_key_store(path) as served:
        both = EtcdGateway([etcd.url]), served.gateway()
        yield both
        for each in both:
            each.close()


_numbers = iter(range(10**9))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=1, max_size=8), ago=st.integers(0, 6))
def test_any_steps_have_the_same_results(
    gateways: tuple[EtcdGateway, EtcdGateway], steps: list[tuple[Any, ...]], ago: int
) -> None:
    prefix = b"/same/%d/" % next(_numbers)
    etcd, own = (Tried(each, prefix) for each in gateways)
    for step in steps:
        assert own.carry_out(step) == etcd.carry_out(step)
    assert own.state() == etcd.state()
    assert own.state(ago) == etcd.state(ago)
    assert own.events() == etcd.events()
