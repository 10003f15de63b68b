"""Internal events: what happens to connections, queues, users and so on, for whoever listens.

A node has one listener or none, `NodeServices.events`. Without one an event costs a comparison with
None; a message is never an event. The listener is called in the midst of the change that it is told
of, so it may read the subject but change nothing.

    events(name, subject, vhost, user)

`name` is RabbitMQ's, such as "queue.created", or one of warren's own. `subject` is the object that
the event is about, the source of an alarm, or a dictionary with the fields of the event. `vhost` is
the name of its vhost (b"": the subject is in none, or knows it), and `user` the name of the user
who asked for the change.
"""

from collections.abc import Callable
from typing import Final

EventListener = Callable[[str, object, bytes, bytes], None]

# RabbitMQ's name for changes that no user asks for, such as the end of an auto-delete queue.
INTERNAL_USER: Final = b"rmq-internal"
