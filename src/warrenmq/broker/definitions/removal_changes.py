"""The deletions in the metadata that follow from a removed queue, exchange or binding."""

from warrenmq.broker.definitions.metadata import Change, DeleteBinding, DeleteExchange
from warrenmq.routing.exchange import Binding
from warrenmq.routing.router import RemovedBindings


def removal_changes(
    vhost_name: bytes, removed: RemovedBindings, with_transient: bool
) -> list[Change]:
    """The changes that delete the bindings and exchanges in `removed`, at least the durable ones.

    A cluster has the transient ones too (`with_transient`).
    """
    changes: list[Change] = []
    for binding in removed.bindings:
        if with_transient or binding.is_durable():
            changes.append(delete_binding(vhost_name, binding))
    for exchange in removed.exchanges:
        if with_transient or exchange.durable:
            changes.append(DeleteExchange(vhost_name, exchange.name))
    return changes


def delete_binding(vhost_name: bytes, binding: Binding) -> DeleteBinding:
    """The change that deletes `binding`."""
    destination = binding.destination
    return DeleteBinding(
        vhost_name,
        binding.source.name,
        destination.name,
        destination.is_queue,
        binding.key,
        binding.arguments,
    )
