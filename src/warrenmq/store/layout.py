"""Names of the directories in a vhost's store."""

from typing import Final

# The first outlives a restart. A start wipes the second, which has the indexes of queues that are not durable as well.
PERSISTENT_NAME: Final = "msg_store_persistent"
TRANSIENT_NAME: Final = "msg_store_transient"
# One directory for each queue's segments.
QUEUES_NAME: Final = "queues"
