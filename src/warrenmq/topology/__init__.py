"""Exchanges, queues and bindings as Python objects or YAML, and their declaration at a broker.

    from warrenmq.topology import Queue, Topology, TopicExchange, bind, declare

    orders = TopicExchange("orders")
    billing = Queue("billing", message_ttl=60_000)
    topology = Topology(orders, billing, bind(billing).to(orders).with_("order.#"))
    declare(topology, "amqp://guest:guest@localhost/")

The classes follow Spring AMQP's. Any AMQP 0-9-1 broker will do. `declare` works over pika, aio-pika
or a URI and imports only what it needs. docs/topology.md is the user's page.
"""

from warrenmq.topology.bindings import Binding, BindingBuilder, bind
from warrenmq.topology.declaring import DeclarationRefusedError, Declared
from warrenmq.topology.document_error import DocumentError
from warrenmq.topology.exchanges import (
    ConsistentHashExchange,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    RandomExchange,
    TopicExchange,
)
from warrenmq.topology.messages import (
    PERSISTENT,
    TRANSIENT,
    Message,
    MessageBuilder,
    MessageProperties,
)
from warrenmq.topology.planning import Change, Difference, Finding, Plan
from warrenmq.topology.queues import AnonymousQueue, Queue, QueueBuilder, base64url_name
from warrenmq.topology.targets import declare, declare_async, plan, plan_async
from warrenmq.topology.topology import Topology

__all__ = [
    "AnonymousQueue",
    "Binding",
    "BindingBuilder",
    "Change",
    "ConsistentHashExchange",
    "DeclarationRefusedError",
    "Declared",
    "Difference",
    "DirectExchange",
    "DocumentError",
    "Exchange",
    "FanoutExchange",
    "Finding",
    "HeadersExchange",
    "Message",
    "MessageBuilder",
    "MessageProperties",
    "PERSISTENT",
    "Plan",
    "Queue",
    "QueueBuilder",
    "RandomExchange",
    "TRANSIENT",
    "TopicExchange",
    "Topology",
    "base64url_name",
    "bind",
    "declare",
    "declare_async",
    "plan",
    "plan_async",
]
