"""Any definitions: exported, imported into a new broker and exported again, they are the same."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.brokers.administered_broker import AdministeredBroker
from warrenmq.admin.definitions.conversion import LeftOut
from warrenmq.queues.arguments import parse_arguments
from warrenmq.queues.definition import QueueDefinition
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.field_types import (
    TAG_ARRAY,
    TAG_BINARY,
    TAG_BOOL,
    TAG_BYTE,
    TAG_DECIMAL,
    TAG_DOUBLE,
    TAG_FLOAT,
    TAG_LONG,
    TAG_LONGSTR,
    TAG_SHORT,
    TAG_SIGNED_INT,
    TAG_TABLE,
    TAG_TIMESTAMP,
    TAG_UNSIGNED_INT,
    TAG_VOID,
)

VHOSTS = ("/", "v", "über")
# The memory broker's own users come first; one of them gets another password.
USERS = ("guest", "ann", "bob", "über")
NAMES = (b"a", b"b", b"\xff\x00", "ü".encode(), b"Not UTF-8, base64 is: YQ==")
TYPES = (b"direct", b"fanout", b"topic", b"headers", b"x-random")

texts = st.text(st.characters(codec="utf-8"), max_size=8)
patterns = st.sampled_from(["", ".*", "^a", "^(?!x)", "^{username}\\.", "ü$"])
vhosts = st.sampled_from(VHOSTS)
hashes = st.sampled_from(
    [
        ("rabbit_password_hashing_sha256", 36),
        ("rabbit_password_hashing_sha512", 68),
        ("rabbit_password_hashing_md5", 20),
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def user_rows(draw: st.DrawFn) -> dict[str, Any]:
    hashing, _ = draw(hashes)
    limits = draw(
        st.dictionaries(st.sampled_from(["max-connections", "max-channels"]), st.integers(0, 9))
    )
    return {
        "name": draw(st.sampled_from(USERS)),
        "password_hash": "",
        "hashing_algorithm": hashing,
        "tags": draw(st.lists(st.sampled_from(["administrator", "management", "ü"]))),
        "limits": limits,
    }


definitions = st.dictionaries(
    st.sampled_from(["expires", "message-ttl", "max-length"]), st.integers(1, 1000), min_size=1
)
documents = st.fixed_dictionaries(
    {
        "vhosts": st.just([{"name": name} for name in VHOSTS])
        | st.lists(
            st.fixed_dictionaries(
                {
                    "name": vhosts,
                    "description": texts,
                    "tags": st.lists(st.sampled_from("ab")),
                    "default_queue_type": st.sampled_from(["classic", "quorum", "undefined"]),
                }
            )
        ).map(lambda rows: [*({"name": name} for name in VHOSTS), *rows]),
        "users": st.lists(user_rows()).map(
            lambda rows: [*({"name": name} for name in USERS), *rows]
        ),
        "permissions": st.lists(
            st.fixed_dictionaries(
                {
                    "user": st.sampled_from(USERS),
                    "vhost": vhosts,
                    "configure": patterns,
                    "write": patterns,
                    "read": patterns,
                }
            )
        ),
        "topic_permissions": st.lists(
            st.fixed_dictionaries(
                {
                    "user": st.sampled_from(USERS),
                    "vhost": vhosts,
                    "exchange": texts,
                    "write": patterns,
                    "read": patterns,
                }
            )
        ),
        "parameters": st.lists(
            st.fixed_dictionaries(
                {
                    "vhost": vhosts,
                    "component": st.sampled_from(["shovel", "federation-upstream"]),
                    "name": texts,
                    "value": json_values,
                }
            )
            | st.fixed_dictionaries(
                {
                    "vhost": vhosts,
                    "component": st.just("operator_policy"),
                    "name": texts,
                    "value": st.fixed_dictionaries(
                        {
                            "pattern": patterns,
                            "definition": definitions,
                            "priority": st.integers(-5, 5),
                            "apply-to": st.just("queues"),
                        }
                    ),
                }
            )
        ),
        "global_parameters": st.lists(st.fixed_dictionaries({"name": texts, "value": json_values})),
        "policies": st.lists(
            st.fixed_dictionaries(
                {
                    "vhost": vhosts,
                    "name": texts,
                    "pattern": patterns,
                    "apply-to": st.sampled_from(["queues", "all"]),
                    "definition": definitions,
                    "priority": st.integers(-5, 5),
                }
            )
        ),
    }
)

scalars = st.one_of(
    st.builds(Field, st.just(TAG_BOOL), st.booleans()),
    st.builds(Field, st.just(TAG_VOID), st.none()),
    st.builds(
        Field, st.sampled_from([TAG_BYTE, TAG_SHORT, TAG_SIGNED_INT]), st.integers(-128, 127)
    ),
    st.builds(Field, st.just(TAG_LONG), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(Field, st.just(TAG_UNSIGNED_INT), st.integers(0, (1 << 32) - 1)),
    st.builds(Field, st.just(TAG_TIMESTAMP), st.integers(0, (1 << 63) - 1)),
    # JSON has no other floats: an export has null in the place of an infinite one.
    st.builds(
        Field,
        st.just(TAG_FLOAT),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
    st.builds(Field, st.just(TAG_DOUBLE), st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(
        Field, st.just(TAG_DECIMAL), st.tuples(st.integers(0, 255), st.integers(0, (1 << 32) - 1))
    ),
    st.builds(Field, st.sampled_from([TAG_LONGSTR, TAG_BINARY]), st.binary(max_size=6)),
    st.builds(Field, st.just(TAG_LONGSTR), texts.map(str.encode)),
)
keys = texts | st.just("k")
fields = st.recursive(
    scalars,
    lambda inner: (
        st.builds(Field, st.just(TAG_ARRAY), st.lists(inner, max_size=3))
        | st.builds(Field, st.just(TAG_TABLE), st.dictionaries(keys, inner, max_size=3))
    ),
    max_leaves=6,
)
tables = st.dictionaries(keys.filter(lambda key: not key.startswith("x-")), fields, max_size=3)
names = st.sampled_from(NAMES)
topologies = st.lists(
    st.one_of(
        st.tuples(
            st.just("exchange"),
            vhosts,
            names,
            st.sampled_from(TYPES),
            st.booleans(),
            st.booleans(),
            st.booleans(),
            tables,
        ),
        st.tuples(st.just("queue"), vhosts, names, st.booleans(), st.booleans(), tables),
        st.tuples(
            st.just("binding"),
            vhosts,
            st.sampled_from((*NAMES, b"amq.topic")),
            names,
            st.booleans(),
            st.binary(max_size=3),
            tables,
        ),
    ),
    max_size=12,
)


def declare(node: AdministeredBroker, kind: str, vhost_name: str, *attributes: Any) -> None:
    """Declare one thing, as a client would; what is there or cannot be stays as it is."""
    vhost = node.broker.vhosts[vhost_name.encode()]
    router = vhost.router
    *given, table = attributes
    arguments = encode_table(table)
    if kind == "exchange":
        name, type, durable, auto_delete, internal = given
        if name not in router.exchanges:
            router.declare_exchange(name, type, durable, auto_delete, internal, arguments)
    elif kind == "queue":
        name, durable, auto_delete = given
        if name not in vhost.queues:
            settings = parse_arguments(arguments, "queue")
            vhost.add_queue(
                QueueDefinition(
                    name,
                    node.broker.next_queue_id(),
                    durable,
                    auto_delete,
                    None,
                    arguments,
                    settings,
                ),
                0,
            )
    else:
        source, destination, is_queue, key = given
        ends = router.queues if is_queue else router.exchanges
        if source in router.exchanges and destination in ends:
            router.bind(router.exchanges[source], ends[destination], key, arguments)


@settings(max_examples=150, deadline=None)
@given(documents, topologies)
def test_an_import_of_an_export_makes_the_same_export(
    document: dict[str, Any], topology: list[Any]
) -> None:
    node = AdministeredBroker()
    before = node.exported()
    data = json.dumps(document).encode()
    planned = node.imported(data, is_dry_run=True)
    assert node.exported() == before
    assert node.imported(data) == planned
    for row in topology:
        try:
            declare(node, *row)
        except (AmqpError, LeftOut):
            # Arguments of a headers binding that no broker takes.
            continue
    exported = node.exported()
    assert node.imported(exported).changes == []
    other = AdministeredBroker()
    assert other.imported(exported).left_out == []
    assert other.exported() == exported
    assert other.imported(exported).changes == []
