"""How the queue of a definition is to be mirrored by the policies of its vhost."""

from __future__ import annotations

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.groups.mirror_policy import MirrorPolicy, mirror_policy
from warrenmq.queues.arguments import parse_arguments


def policy_of(vhost: Vhost, put: PutQueue) -> MirrorPolicy:
    """The policy by which `put`, declared or about to be, is mirrored.

    It follows the newest policies, which the queue itself may get a little later. Raises AmqpError
    for arguments that no queue can have.
    """
    settings = parse_arguments(put.arguments, vhost.queue_text(put.name))
    policies = vhost.policies.of_name(put.name, settings.traits.is_quorum)
    definition = None if policies is None else policies.definition
    return mirror_policy(definition, put.arguments, put.is_exclusive)
