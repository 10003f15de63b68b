"""Listings: all columns of all listings, refused requests, slices, counts that are a model's."""

import random
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, get_args

import pytest

from tests.admin.test_figures import Model
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.admin.listings.listing import LISTINGS, UnknownColumns, UnknownVhost, listing
from warrenmq.admin.listings.pids import connection_pid
from warrenmq.admin.listings.tls_names import TlsNames, tls_names
from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.queue_columns import QUEUE_COLUMNS
from warrenmq.admin.protocol.requests import decode_reply, decode_request, encode_frame
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.peer_certificate import PeerCertificate
from warrenmq.broker.definitions.metadata import PutUser
from warrenmq.queues.queue_figures import QueueFigures
from warrenmq.wire.methods import TxSelect
from warrenmq.wire.properties import Properties

# Listings of what belongs to a vhost: they need one.
OF_A_VHOST = [
    "bindings", "consumers", "exchanges", "operator_policies", "parameters", "permissions",
    "policies", "queues", "topic_permissions",
]  # fmt: skip


def rows(broker: Broker, what: Any, *columns: str, vhost: str = "/", user: str = "") -> Any:
    """The rows of a listing as an admin client gets them: with all columns, or the given ones."""
    names = list(columns) or LISTINGS[what].column_names
    found = list(listing(broker, List(what=what, columns=names, vhost=vhost, user=user)))
    reply = decode_reply(bytes(encode_frame(Rows(found)))[4:])
    assert isinstance(reply, Rows) and reply.rows == found
    return [dict(zip(names, row, strict=True)) for row in found]


class Busy:
    """A broker with something in each listing."""

    def __init__(self) -> None:
        self.memory = MemoryBroker()
        self.broker = self.memory.broker
        access = self.broker.access
        access.attempts.is_tracking = True
        access.users[b"limited"] = PutUser(b"limited", b"", "", ["monitoring"], 5, -1)
        self.broker.parameters[b"/", "vhost-limits", "limits"] = '{"max-connections": 50}'
        self.broker.parameters[b"/", "policy", "short"] = "{}"
        self.broker.parameters[b"", "", "cluster_name"] = '"x"'
        policies = self.memory.vhost.policies
        value = (
            '{"pattern":"^a","definition":{"message-ttl":5000},"priority":2,"apply-to":"queues"}'
        )
        policies.put("policy", "short", value)
        value = '{"pattern":"","definition":{"max-length":9},"priority":0,"apply-to":"all"}'
        policies.put("operator_policy", "bound", value)
        self.peer = Peer(self.memory.connect()).open(heartbeat=30)
        self.link = self.memory.links[0]
        channel = self.peer.channel()
        lazy = table(**{"x-queue-mode": "lazy", "x-many": [1, True, {"a": b"\xff"}]})
        channel.declare(b"a", durable=True, arguments=lazy)
        channel.declare(b"mine", exclusive=True)
        channel.declare(b"taken")
        channel.exchange(b"topics", b"topic", durable=True)
        channel.bind(b"a", b"topics", b"k.*", table(z=1, b=2))
        channel.bind_exchange(b"topics", b"amq.fanout")
        stamped = Properties(delivery_mode=2, timestamp=1_700_000_000).encode()
        for _ in range(5):
            channel.publish(b"taken", b"x" * 100, stamped)
        channel.qos(9, whole_channel=True)
        channel.qos(2)
        channel.qos(9, whole_channel=True)
        channel.consume(b"taken", b"tag", exclusive=True, arguments=table(**{"x-priority": 3}))
        for _ in range(2):
            channel.message()
        confirming = self.peer.channel()
        confirming.confirm_select()
        self.memory.holds_commits = True
        for _ in range(3):
            confirming.publish(b"a", b"y", stamped)
        transacted = self.peer.channel()
        transacted.call(TxSelect())
        transacted.publish(b"a", b"z")


def test_every_column_has_a_plain_value() -> None:
    """No column fails, and a reply carries each value; a listing has rows, or it proves nothing."""
    busy = Busy()
    assert set(LISTINGS) == set(get_args(List.__annotations__["what"]))
    for what in LISTINGS:
        if "permissions" not in what:
            user = "limited" if what == "user_limits" else ""
            assert rows(busy.broker, what, user=user), what


def test_columns_of_connections() -> None:
    busy = Busy()
    (found,) = rows(busy.broker, "connections")
    connection = busy.link.connection
    assert connection is not None
    assert found["pid"] == connection_pid(busy.broker, connection) == "<warren@localhost.1.1.0>"
    expected = {
        "state": "running", "channels": 3, "user": "guest", "vhost": "/", "timeout": 30,
        "auth_mechanism": "PLAIN", "frame_max": 131072, "channel_max": 2047, "ssl": False,
        "protocol": "{0,9,1}", "ssl_cipher": None, "send_pend": 0, "peer_cert_subject": None,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["client_properties"]["product"] == "conformance"
    assert 0 < found["recv_cnt"] < found["recv_oct"]
    assert 0 < found["send_cnt"] < found["send_oct"]
    assert found["connected_at"] == 1_700_000_000_000


def test_the_age_of_the_oldest_unacked_delivery() -> None:
    """Of each channel and queue that has one; nothing of the others."""
    memory = MemoryBroker()
    peer = Peer(memory.connect()).open(heartbeat=0)
    channels = [peer.channel() for _ in range(2)]
    for name in (b"slow", b"quick", b"unread"):
        channels[0].declare(name)
        channels[0].publish(name, b"m")
    channels[0].get(b"slow")
    memory.advance(60_000)
    channels[0].get(b"quick")
    memory.advance(5_000)
    column = "oldest_unacknowledged_seconds"
    first, second = [row[column] for row in rows(memory.broker, "channels", column)]
    assert 55 <= first <= 66 and second is None
    ages = {row["name"]: row[column] for row in rows(memory.broker, "queues", "name", column)}
    assert ages["slow"] == first and ages["quick"] <= 6 and ages["unread"] is None


def test_the_age_of_the_oldest_unacked_delivery_of_a_consumer() -> None:
    """Each consumer of a channel has its own."""
    memory = MemoryBroker()
    channel = Peer(memory.connect()).open(heartbeat=0).channel()
    for name in (b"slow", b"quick", b"idle"):
        channel.declare(name)
        channel.consume(name, name)
    channel.publish(b"slow", b"m")
    memory.advance(60_000)
    channel.publish(b"quick", b"m")
    memory.advance(5_000)
    columns = ("queue_name", "messages_unacknowledged", "oldest_unacknowledged_seconds")
    found = {row["queue_name"]: row for row in rows(memory.broker, "consumers", *columns)}
    ages = {name: row["oldest_unacknowledged_seconds"] for name, row in found.items()}
    assert [found[name]["messages_unacknowledged"] for name in ("slow", "quick", "idle")] == [
        1,
        1,
        0,
    ]
    assert 55 <= ages["slow"] <= 66 and ages["quick"] <= 6 and ages["idle"] is None


def test_a_connection_in_its_handshake_is_listed() -> None:
    memory = MemoryBroker()
    peer = "[::1]:50000 -> 127.0.0.1:5671"
    cipher = "ECDHE-RSA-AES128-GCM-SHA256"
    certificate = PeerCertificate(b"c", "CN=c", "CN=a", "long")
    memory.broker.connect(peer, True, 5, certificate, "TLSv1.2", cipher, "127.0.0.1:5671")
    (found,) = rows(memory.broker, "connections")
    expected = {
        "name": peer, "peer_host": "::1", "peer_port": 50000, "host": "127.0.0.1", "port": 5671,
        "ssl": True, "ssl_protocol": "tlsv1.2", "ssl_key_exchange": "ecdhe_rsa",
        "ssl_cipher": "aes_128_gcm", "ssl_hash": "aead", "state": "starting", "user": None,
        "vhost": None, "timeout": None, "connected_at": 5, "peer_cert_subject": "CN=c",
        "peer_cert_issuer": "CN=a", "peer_cert_validity": "long",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_columns_of_channels_and_consumers() -> None:
    busy = Busy()
    consuming, confirming, transacted = rows(busy.broker, "channels")
    expected = {
        "pid": "<warren@localhost.1.1.1>", "connection": "<warren@localhost.1.1.0>",
        "name": "test (1)", "consumer_count": 1, "messages_unacknowledged": 2, "prefetch_count": 2,
        "global_prefetch_count": 9, "confirm": False, "transactional": False, "state": "running",
    }  # fmt: skip
    assert {name: consuming[name] for name in expected} == expected
    assert (confirming["confirm"], confirming["messages_unconfirmed"]) == (True, 3)
    assert (transacted["transactional"], transacted["messages_uncommitted"]) == (True, 1)
    assert rows(busy.broker, "consumers") == [
        {
            "queue_name": "taken", "channel_pid": "<warren@localhost.1.1.1>", "consumer_tag": "tag",
            "ack_required": True, "prefetch_count": 2, "active": True, "activity_status": "up",
            "arguments": {"x-priority": 3}, "messages_unacknowledged": 2,
            "oldest_unacknowledged_seconds": 0.0,
        }
    ]  # fmt: skip
    busy.memory.holds_commits = False
    busy.memory.pump()
    assert [row["messages_unconfirmed"] for row in rows(busy.broker, "channels")] == [0, 0, 0]


def test_columns_of_queues() -> None:
    busy = Busy()
    found = {row["name"]: row for row in rows(busy.broker, "queues")}
    expected = {
        "policy": "short", "operator_policy": "bound", "durable": True, "mode": "lazy",
        "effective_policy_definition": {"max-length": 9, "message-ttl": 5000}, "type": "classic",
        "arguments": {"x-queue-mode": "lazy", "x-many": [1, True, {"a": "\ufffd"}]},
        "messages": 3, "message_bytes": 3, "consumers": 0, "consumer_capacity": 0,
        "exclusive_consumer_tag": None, "messages_persistent": 3, "message_bytes_persistent": 3,
    }  # fmt: skip
    assert {name: found["a"][name] for name in expected} == expected
    assert found["mine"]["owner_pid"] == "<warren@localhost.1.1.0>"
    expected = {
        "messages": 5, "messages_ready": 3, "messages_unacknowledged": 2, "message_bytes": 500,
        "message_bytes_unacknowledged": 200, "head_message_timestamp": 1_700_000_000,
        "exclusive_consumer_tag": "tag", "exclusive_consumer_pid": "<warren@localhost.1.1.1>",
        "messages_persistent": 0, "consumer_capacity": 1.0, "policy": None, "owner_pid": None, "exclusive": False,
    }  # fmt: skip
    assert {name: found["taken"][name] for name in expected} == expected
    assert len({row["pid"] for row in found.values()}) == 3


def test_a_priority_queue_is_listed_with_all_its_levels() -> None:
    memory = MemoryBroker()
    channel = Peer(memory.connect()).open().channel()
    channel.declare(b"levels", durable=True, arguments=table(**{"x-max-priority": 3}))
    for priority in range(4):
        properties = Properties(
            delivery_mode=1 + priority % 2, priority=priority, timestamp=priority
        )
        channel.publish(b"levels", b"x" * 10, properties.encode())
    memory.pump()
    expected = {
        "messages": 4, "message_bytes": 40, "messages_persistent": 2, "message_bytes_ready": 40,
        "message_bytes_persistent": 20, "messages_ram": 4, "q4": 4, "head_message_timestamp": 3,
    }  # fmt: skip
    assert rows(memory.broker, "queues", *expected) == [expected]
    figures = QueueFigures(memory.vhost.queues[b"levels"])
    assert (figures.ready, figures.alpha.count, figures.q4, figures.published) == (4, 4, 4, 4)
    assert figures.ram_count == 4 and figures.target_ram_count is None


def test_the_values_of_a_queue_have_the_types_of_its_columns() -> None:
    """Each described column has a value, and none is left out of the description."""
    types = {
        "text": str, "flag": bool, "number": int | float, "count": int, "bytes": int, "total": int,
        "share": int | float, "list": list, "map": dict,
    }  # fmt: skip
    assert LISTINGS["queues"].column_names == list(QUEUE_COLUMNS)
    assert {column.type for column in QUEUE_COLUMNS.values()} == set(types)
    for row in rows(Busy().broker, "queues"):
        for name, value in row.items():
            assert value is None or isinstance(value, types[QUEUE_COLUMNS[name].type]), name


def test_reads_and_writes_of_a_queue() -> None:
    """Each message counts once as written, when it is, and as read each time it comes back."""
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"q")

    def found() -> tuple[int, int]:
        (row,) = rows(node.broker, "queues", "disk_writes", "disk_reads")
        return row["disk_writes"], row["disk_reads"]

    for number in range(6):
        node.publish(b"q", bytes(10 if number < 4 else 5000), number % 2 == 0)
    assert found() == (0, 0)
    node.commit()
    assert found() == (3, 0)
    queue.backing.memory.set_mode(True)
    node.work()
    assert queue.backing.ready.delta.count == 6 and found() == (6, 0)
    queue.backing.memory.set_mode(False)
    queue.when_head(lambda _now_ms: None)
    node.work()
    assert queue.backing.ready.ram_count == 6 and found() == (6, 6)


def test_rows_of_exchanges_and_bindings() -> None:
    busy = Busy()
    exchanges = {row["name"]: row["type"] for row in rows(busy.broker, "exchanges", "name", "type")}
    assert exchanges["topics"] == "topic" and exchanges[""] == "direct" and len(exchanges) == 8
    bindings = [list(row.values()) for row in rows(busy.broker, "bindings")]
    assert bindings == [
        *(["", "exchange", name, "queue", name, {}] for name in ("a", "mine", "taken")),
        ["amq.fanout", "exchange", "topics", "exchange", "", {}],
        ["topics", "exchange", "a", "queue", "k.*", {"b": 2, "z": 1}],
    ]


@pytest.mark.parametrize(
    "what, column, names, found",
    [
        ("queues", "name", ["taken", "none", "a", "taken"], ["taken", "a"]),
        ("queues", "name", [], []),
        ("exchanges", "name", ["", "topics", "taken"], ["", "topics"]),
        ("consumers", "queue_name", ["taken"], ["taken"]),
        ("consumers", "queue_name", ["a"], []),
        ("connections", "name", ["test"], ["test"]),
        ("connections", "name", ["<warren@localhost.1.1.0>"], ["test"]),
        ("connections", "name", ["tes"], []),
        ("channels", "number", ["test"], [1, 2, 3]),
        ("channels", "number", ["test (2)", "<warren@localhost.1.1.3>"], [2, 3]),
        ("channels", "number", ["<warren@localhost.1.1.0>"], []),
        # A binding of two objects with these names is listed once.
        ("bindings", "routing_key", ["a"], ["a", "k.*"]),
        ("bindings", "routing_key", ["topics"], ["k.*", ""]),
        ("bindings", "routing_key", ["amq.fanout", "topics", "a"], ["", "k.*", "a"]),
        ("bindings", "destination_name", [""], ["a", "mine", "taken"]),
    ],
)
def test_only_the_rows_about_named_objects(
    what: Any, column: str, names: list[str], found: list[Any]
) -> None:
    request = List(what=what, columns=[column], vhost="/", names=names)
    assert [row[0] for row in listing(Busy().broker, request)] == found


def test_a_named_queue_costs_the_same_among_many() -> None:
    def calls(queues: int) -> int:
        node = MemoryNode(MemoryDisk())
        for number in range(queues):
            node.declare(b"q%d" % number)
        request = List(what="queues", columns=list(QUEUE_COLUMNS), vhost="/", names=["q1"])
        return calls_of(lambda: list(listing(node.broker, request)))

    assert calls(2) == calls(200)


def test_a_request_without_names_is_one_of_an_earlier_version() -> None:
    sent = decode_request(bytes(encode_frame(List(what="queues", columns=["name"])))[4:])
    assert sent == List(what="queues", columns=["name"])
    assert b"names" not in encode_frame(List(what="queues", columns=["name"]))


def test_rows_of_users_vhosts_policies_and_limits() -> None:
    busy = Busy()
    broker = busy.broker
    assert rows(broker, "users", "user", "tags")[0] == {"user": "guest", "tags": ["administrator"]}
    assert rows(broker, "user_limits") == [{"user": "limited", "limits": '{"max-connections":5}'}]
    assert rows(broker, "user_limits", user="guest") == []
    limits = [{"vhost": "/", "limits": '{"max-connections":50}'}]
    assert rows(broker, "vhost_limits", vhost="") == rows(broker, "vhost_limits") == limits
    assert rows(broker, "vhosts", "name", "tags", "default_queue_type", "cluster_state") == [
        {
            "name": "/",
            "tags": [],
            "default_queue_type": "undefined",
            "cluster_state": {"warren@localhost": "running"},
        }
    ]
    stamp = rows(broker, "vhosts", "topology_version")
    assert rows(broker, "vhosts", "topology_version") == stamp
    busy.peer.channel().declare(b"new")
    assert rows(broker, "vhosts", "topology_version") != stamp
    (policy,) = rows(broker, "policies")
    assert list(policy.values()) == ["/", "short", "^a", "queues", '{"message-ttl":5000}', 2]
    # Operator policies are parameters, policies are not.
    assert [row["component"] for row in rows(broker, "parameters")] == ["vhost-limits"]
    assert rows(broker, "global_parameters") == [{"name": "cluster_name", "value": '"x"'}]


def test_permissions_of_a_vhost_and_of_a_user() -> None:
    broker = MemoryBroker().broker
    found = rows(broker, "permissions", "user", "configure", "write", "read")
    assert sorted(row["user"] for row in found) == ["actor", "guest"]
    assert rows(broker, "user_permissions", "vhost", "read", user="actor") == [
        {"vhost": "/", "read": ".*"}
    ]
    assert rows(broker, "user_permissions", user="outsider") == []
    assert rows(broker, "topic_permissions") == rows(broker, "user_topic_permissions") == []


@pytest.mark.parametrize("what", sorted(LISTINGS))
def test_all_unknown_columns_are_named_before_anything_is_done(what: Any) -> None:
    broker = MemoryBroker().broker
    choose = random.Random(what)
    known = LISTINGS[what].column_names
    for _ in range(20):
        unknown = [f"bogus{number}" for number in range(choose.randint(1, 3))]
        columns = choose.sample(known, choose.randint(0, len(known))) + unknown
        choose.shuffle(columns)
        with pytest.raises(UnknownColumns) as refusal:
            listing(broker, List(what=what, columns=columns, vhost="none"))
        assert sorted(refusal.value.names) == unknown


@pytest.mark.parametrize("what", OF_A_VHOST)
def test_a_listing_of_a_vhost_needs_one(what: Any) -> None:
    broker = MemoryBroker().broker
    columns = LISTINGS[what].column_names
    for name in ("", "none"):
        with pytest.raises(UnknownVhost, match=f"Virtual host '{name}' does not exist"):
            listing(broker, List(what=what, columns=columns, vhost=name))


def calls_of(work: Callable[[], object]) -> int:
    """The number of calls that `work` makes."""
    count = 0

    def on_event(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_slice_of_rows_costs_the_same_however_many_queues_there_are() -> None:
    """The snapshot is one copy of a dict; 200 rows take the same steps of 300 queues or 10,000."""
    costs = []
    for count in (300, 10_000):
        node = MemoryNode(MemoryDisk())
        for number in range(count):
            node.declare(b"q%d" % number, durable=False)
        request = List(what="queues", columns=LISTINGS["queues"].column_names, vhost="/")
        taken = [calls_of(partial(listing, node.broker, request))]
        found = listing(node.broker, request)
        taken.append(calls_of(partial(list, islice(found, 200))))
        costs.append(taken)
        # Queues that are deleted meanwhile are missing from there on.
        node.delete(b"q250")
        assert sum(1 for _ in found) == count - 201
    assert costs[0] == costs[1] and costs[0][0] < 200


@pytest.mark.parametrize("seed", range(4))
def test_counts_of_messages_and_bytes_are_those_of_a_model(seed: int) -> None:
    model = Model(seed)
    for _ in range(60):
        for _ in range(model.choose.randrange(1, 30)):
            model.step()
        model.work()
        for place, found in enumerate(rows(model.node.broker, "queues")):
            alive = model.alive[place]
            out = {one.seq for one in model.out if one.queue is model.queues[place]}
            unacked = sum(alive[seq][0] for seq in out)
            total = sum(size for size, _ in alive.values())
            assert found["messages"] == len(alive)
            assert found["messages_unacknowledged"] == len(out)
            assert found["messages_ready"] == len(alive) - len(out)
            assert (
                found["messages_ready"] == found["messages_ready_ram"] + found["messages_paged_out"]
            )
            assert found["message_bytes"] == total
            assert found["message_bytes_unacknowledged"] == unacked
            assert found["message_bytes_ready"] == total - unacked
            is_durable = model.queues[place].durable
            lasting = [size for size, persistent in alive.values() if persistent and is_durable]
            assert found["messages_persistent"] == len(lasting)
            assert found["message_bytes_persistent"] == sum(lasting)
            parts = [found[part] for part in ("q1", "q2", "delta", "q3", "q4")]
            forms = [found[form] for form in ("alpha", "beta", "gamma", "delta")]
            assert sum(parts) == sum(forms) == found["messages_ready"]


@pytest.mark.parametrize(
    ("suite", "names"),
    [
        ("TLS_AES_256_GCM_SHA384", TlsNames("any", "aes_256_gcm", "aead")),
        ("TLS_CHACHA20_POLY1305_SHA256", TlsNames("any", "chacha20_poly1305", "aead")),
        ("TLS_AES_128_CCM_8_SHA256", TlsNames("any", "aes_128_ccm_8", "aead")),
        ("ECDHE-ECDSA-AES256-CCM8", TlsNames("ecdhe_ecdsa", "aes_256_ccm_8", "aead")),
        ("ECDHE-RSA-AES128-SHA256", TlsNames("ecdhe_rsa", "aes_128_cbc", "sha256")),
        ("AES256-SHA", TlsNames("rsa", "aes_256_cbc", "sha")),
        ("DES-CBC3-SHA", TlsNames()),
        ("", TlsNames()),
    ],
)
def test_names_of_cipher_suites(suite: str, names: TlsNames) -> None:
    assert tls_names(suite) == names
