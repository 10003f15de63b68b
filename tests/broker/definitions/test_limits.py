"""Limits of vhosts and users, and RabbitMQ 3.10.8's texts for wrong ones."""

import json

import pytest

from warrenmq.broker.definitions.account import Account
from warrenmq.broker.definitions.limits import VhostLimits, check_limits
from warrenmq.broker.definitions.metadata import NO_LIMIT, PutUser

# Each recorded from `rabbitmqctl set_vhost_limits`.
REFUSED = {
    '{"max-queues": 1.5}': "max-queues should be a number, actually was 1.5",
    '{"max-queues": true}': "max-queues should be a number, actually was true",
    '{"max-queues": null}': "max-queues should be a number, actually was null",
    '{"max-queues": [1]}': "max-queues should be a number, actually was [1]",
    '{"max-queues": {"a":1}}': 'max-queues should be a number, actually was #{<<"a">> => 1}',
    '{"max-queues": 1e3}': "max-queues should be a number, actually was 1.0e3",
    '{"max-foo":"x","max-bar":2}': (
        'Unrecognised terms [{<<"max-bar">>,2},{<<"max-foo">>,<<"x">>}] in limits'
    ),
    '{"max-queues":"x","max-connections":"y"}': (
        'max-queues should be a number, actually was <<"x">>\n'
        'max-connections should be a number, actually was <<"y">>'
    ),
    '{"max-queues":"x","max-foo":"y"}': (
        'Unrecognised terms [{<<"max-foo">>,<<"y">>}] in limits\n'
        'max-queues should be a number, actually was <<"x">>'
    ),
}


@pytest.mark.parametrize("value", REFUSED)
def test_wrong_limits(value: str) -> None:
    with pytest.raises(ValueError) as refusal:
        check_limits(value)
    assert str(refusal.value) == f"Validation failed\n\n{REFUSED[value]}\n"


def test_limits_replace_all_former_ones() -> None:
    limits = VhostLimits()
    limits.put('{"max-connections": 3, "max-queues": 0}')
    assert (limits.max_connections, limits.max_queues) == (3, 0)
    value = json.dumps({"max-queues": 1 << 80, "max-connections": -5})
    check_limits(value)
    limits.put(value)
    assert limits.max_connections == NO_LIMIT
    assert limits.max_queues > 1 << 60
    limits.put("{}")
    assert (limits.max_connections, limits.max_queues) == (NO_LIMIT, NO_LIMIT)
    limits.put('{"max-queues": 7}')
    limits.clear()
    assert limits.max_queues == NO_LIMIT


@pytest.mark.parametrize(("limit", "allowed"), [(NO_LIMIT, 99), (0, 0), (2, 2)])
def test_limits_of_a_user(limit: int, allowed: int) -> None:
    account = Account(PutUser(b"app", b"", "", [], limit, limit))
    for count in range(allowed):
        account.connection_count = account.channel_count = count
        assert account.connection_refusal() == account.channel_refusal() == ""
    if limit != NO_LIMIT:
        account.connection_count = account.channel_count = allowed
        assert account.connection_refusal() == (
            f"connection refused for user 'app': user connection limit ({limit}) is reached"
        )
        assert account.channel_refusal() == (
            "number of channels opened for user 'app' has reached the maximum allowed user limit "
            f"of ({limit})"
        )
        account.define(PutUser(b"app", b"", "", ["impersonator"]))
        assert account.connection_refusal() == account.channel_refusal() == ""
        assert account.is_impersonator
