"""The changes that a node makes after it has missed decisions: the difference of two states.

Etcd keeps its history for a while only. A node that was away from it for longer compares what it
has with what the cluster has now.
"""

from __future__ import annotations

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions import metadata
from warrenmq.cluster.definitions_copy import DefinitionsCopy


def missed_changes(
    copy: DefinitionsCopy, broker: Broker, shared: metadata.Definitions
) -> list[metadata.Change]:
    """The changes that bring a node with `copy` and `broker` to the definitions `shared`."""
    changes: list[metadata.Change] = []
    vhosts = {vhost.name: vhost for vhost in shared.vhosts}
    for name, vhost in copy.vhosts.items():
        now = vhosts.get(name)
        if now is None or now.birth != vhost.birth:
            changes.append(metadata.DeleteVhost(name))
    changes.extend(_gone_rights(broker, shared))
    queues = {(each.vhost, each.name): each.birth for each in shared.queues}
    for place, queue in copy.queues.items():
        if queues.get(place) != queue.birth:
            changes.append(metadata.DeleteQueue(queue.vhost, 0, queue.name))
    exchanges = {(each.vhost, each.name): each.birth for each in shared.exchanges}
    for place, exchange in copy.exchanges.items():
        if exchanges.get(place) != exchange.birth:
            changes.append(metadata.DeleteExchange(exchange.vhost, exchange.name))
    changes.extend(_gone_bindings(broker, shared))
    sinks = {(each.vhost, each.name): each.birth for each in shared.sinks}
    for place, sink in copy.sinks.items():
        if sinks.get(place) != sink.birth:
            changes.append(metadata.DeleteSink(sink.vhost, sink.name))
    # Definitions that are there already are put again, which changes nothing.
    changes.extend(shared.vhosts)
    changes.extend(shared.users)
    changes.extend(shared.permissions)
    changes.extend(shared.topic_permissions)
    changes.extend(shared.parameters)
    changes.extend(shared.exchanges)
    changes.extend(shared.queues)
    changes.extend(shared.bindings)
    changes.extend(shared.sinks)
    return changes


def _gone_rights(broker: Broker, shared: metadata.Definitions) -> list[metadata.Change]:
    changes: list[metadata.Change] = []
    users = {user.name for user in shared.users}
    changes.extend(metadata.DeleteUser(name) for name in broker.access.users if name not in users)
    permissions = {(each.vhost, each.user) for each in shared.permissions}
    changes.extend(
        metadata.DeletePermission(each.vhost, each.user)
        for each in broker.access.permissions()
        if (each.vhost, each.user) not in permissions
    )
    parameters = {(each.vhost, each.component, each.name) for each in shared.parameters}
    changes.extend(
        metadata.DeleteParameter(*key) for key in broker.parameters if key not in parameters
    )
    return changes


def _gone_bindings(broker: Broker, shared: metadata.Definitions) -> list[metadata.Change]:
    there = {
        (each.vhost, each.source, each.destination_is_queue, each.destination, each.key, each.arguments)
        for each in shared.bindings
    }  # fmt: skip
    changes: list[metadata.Change] = []
    for vhost in broker.vhosts.values():
        for exchange in vhost.router.exchanges.values():
            for binding in exchange.outgoing.values():
                end = binding.destination
                place = (
                    vhost.name, exchange.name, end.is_queue, end.name, binding.key, binding.arguments
                )  # fmt: skip
                if place not in there:
                    changes.append(
                        metadata.DeleteBinding(
                            vhost.name, exchange.name, end.name, end.is_queue, binding.key,
                            binding.arguments,
                        )
                    )  # fmt: skip
    return changes
