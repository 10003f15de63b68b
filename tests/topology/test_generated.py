"""Any topology survives YAML, and declaring it a second time changes nothing."""

import itertools
import random
from typing import Any

import pika
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.brokers.fixtures import FOREIGN_URI
from warrenmq.topology import (
    AnonymousQueue,
    Binding,
    ConsistentHashExchange,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    Queue,
    RandomExchange,
    TopicExchange,
    Topology,
    declare,
    plan,
)

# Names begin with the number of a case, so that no two cases of a run meet at the broker.
RUN = f"{random.getrandbits(40):010x}"
CASES = itertools.count()

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# The broker answers for its own arguments; these belong to nobody.
KEYS = TEXTS.map("y-".__add__)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(KEYS, VALUES, max_size=3)
NAMES = TEXTS.map(lambda text: text.replace("\n", "").replace("\r", ""))
SUFFIXES = st.lists(NAMES, unique=True, max_size=4)
TYPES: list[type[Exchange]] = [DirectExchange, TopicExchange, FanoutExchange, HeadersExchange]
if not FOREIGN_URI:
    # RabbitMQ has these as plug-ins.
    TYPES += [ConsistentHashExchange, RandomExchange]
TIMES_MS = st.integers(60_000, 10**9)
LIMITS = st.integers(0, 10**9)
# Arguments of all queues, and those that quorum queues do not have.
QUEUE_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "message_ttl": TIMES_MS,
    "expires": TIMES_MS,
    "max_length": LIMITS,
    "max_length_bytes": LIMITS,
    "overflow": st.sampled_from(["drop-head", "reject-publish"]),
    "dead_letter_exchange": NAMES,
    "single_active_consumer": st.booleans(),
}
CLASSIC_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "durable": st.booleans(),
    "exclusive": st.booleans(),
    "auto_delete": st.booleans(),
    "overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
    "max_priority": st.integers(1, 10),
    "lazy": st.booleans(),
    "master_locator": st.sampled_from(["min-masters", "client-local", "random"]),
}
QUORUM_FIELDS: dict[str, st.SearchStrategy[Any]] = {"delivery_limit": LIMITS}


@st.composite
def exchanges(draw: st.DrawFn, name: str) -> Exchange:
    made: Any = draw(st.sampled_from(TYPES))
    exchange: Exchange = made(
        name,
        durable=draw(st.booleans()),
        auto_delete=draw(st.booleans()),
        internal=draw(st.booleans()),
        delayed=not FOREIGN_URI and draw(st.booleans()),
        alternate_exchange=draw(st.none() | st.just(name)),
        arguments=draw(ARGUMENTS),
    )
    return exchange


@st.composite
def queues(draw: st.DrawFn, name: str) -> Queue:
    form, arguments = draw(st.integers(0, 5)), draw(ARGUMENTS)
    if form == 0:
        return AnonymousQueue(name, arguments=arguments)
    is_quorum = form == 1
    optional = QUEUE_FIELDS | (QUORUM_FIELDS if is_quorum else CLASSIC_FIELDS)
    fields = draw(st.fixed_dictionaries({}, optional=optional))
    if "dead_letter_exchange" in fields:
        fields["dead_letter_routing_key"] = draw(st.none() | TEXTS)
    return Queue(name, arguments=arguments, quorum=is_quorum, **fields)


@st.composite
def bindings(draw: st.DrawFn, sources: list[Exchange], ends: list[Exchange | Queue]) -> Binding:
    end = draw(st.sampled_from(ends))
    source = draw(st.sampled_from(sources))
    # The key of a consistent-hash exchange is a weight.
    is_hash = isinstance(source, ConsistentHashExchange)
    key = str(draw(st.integers(1, 9))) if is_hash else draw(TEXTS)
    type: Any = end.kind
    return Binding(source.name, end.name, key, draw(ARGUMENTS), type)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    prefix = f"{RUN}-{next(CASES)}-"
    made = [draw(exchanges(prefix + suffix)) for suffix in draw(SUFFIXES)]
    ends: list[Exchange | Queue] = [
        *made,
        *(draw(queues(prefix + suffix)) for suffix in draw(SUFFIXES)),
    ]
    bound: list[Binding] = []
    if made:
        bound = draw(st.lists(bindings(made, ends), max_size=4))
    declarations: list[Exchange | Queue | Binding] = [*ends, *bound]
    return Topology(*draw(st.permutations(declarations)))


@given(topologies())
def test_a_topology_survives_yaml(topology: Topology) -> None:
    text = topology.to_yaml()
    read = Topology.from_yaml(text)
    assert read == topology
    assert read.to_yaml() == text


@pytest.mark.interop
@settings(max_examples=40, deadline=None)
@given(topologies())
def test_declaring_twice_changes_nothing(broker_uri: str, topology: Topology) -> None:
    """The second declaration is not refused, and the broker has what the topology says."""
    # An exclusive queue is the connection's, and a plan at a URI refuses it.
    shared = Topology(
        *topology.exchanges,
        *(queue for queue in topology.queues if not queue.exclusive),
        *(binding for binding in topology.bindings if not is_exclusive(binding, topology)),
    )
    with pika.BlockingConnection(pika.URLParameters(broker_uri)) as connection:
        first = declare(topology, connection)
        found = plan(shared, broker_uri)
        assert declare(topology, connection) == first
        assert plan(shared, broker_uri) == found
        if not FOREIGN_URI:
            assert found.is_done, str(found)


def is_exclusive(binding: Binding, topology: Topology) -> bool:
    return binding.destination_type == "queue" and any(
        queue.exclusive for queue in topology.queues if queue.name == binding.destination
    )
