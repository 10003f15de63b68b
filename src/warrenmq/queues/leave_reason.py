"""Why a message leaves its queue for good."""

from typing import Final

# A consumer acked the message, or a reader group or a sink has finished with it.
ACKED: Final = 0
# A consumer rejected the message without requeue.
REJECTED: Final = 1
# The message's time to live is over.
EXPIRED: Final = 2
# The message was delivered to a no-ack consumer.
HANDED_OVER: Final = 3
# The queue was purged.
PURGED: Final = 4
# The message's content cannot be read any more.
LOST: Final = 5
# The queue had no room for it, or for a younger one.
MAXLEN: Final = 6
# Consumers returned the message too often.
DELIVERY_LIMIT: Final = 7
