"""`python -m demo.cluster.tour URI...`: one small client, in its place in the network.

It declares a queue through each node and uses it through the next one at once; then it fills the
queue of the demo that nobody consumes. Exit status 1 when a message did not come.
"""

import sys

import pika

# The queue that is filled before the faults, and compared on all disks after them.
KEPT = "kept"
KEPT_COUNT = 100


def main(uris: list[str]) -> int:
    found = [
        _send_through(uri, uris[(number + 1) % len(uris)], f"tour-{number}")
        for number, uri in enumerate(uris)
    ]
    _fill(uris[0])
    return 0 if all(found) else 1


def _send_through(declarer: str, other: str, queue: str) -> bool:
    """Declare `queue` through one node; publish and get a message through the other."""
    with pika.BlockingConnection(pika.URLParameters(declarer)) as first:
        first.channel().queue_declare(queue, durable=True)
        with pika.BlockingConnection(pika.URLParameters(other)) as second:
            channel = second.channel()
            channel.confirm_delivery()
            channel.basic_publish("", queue, b"hello", pika.BasicProperties(delivery_mode=2))
            _method, _properties, body = channel.basic_get(queue, auto_ack=True)
            channel.queue_delete(queue)
    return bool(body == b"hello")


def _fill(uri: str) -> None:
    """Publish to KEPT, both sides of the size from which bodies are stored apart."""
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(KEPT, durable=True)
        for number in range(KEPT_COUNT):
            properties = pika.BasicProperties(delivery_mode=2, message_id=f"{KEPT}-{number}")
            channel.basic_publish("", KEPT, b"%d" % number * (10 + number * 20), properties)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
