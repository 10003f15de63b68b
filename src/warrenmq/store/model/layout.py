"""Names of the directories in a vhost's store."""

from typing import Final

# The journal's files.
JOURNAL_NAME: Final = "journal"
# The persistent content store; it outlives a restart.
PERSISTENT_NAME: Final = "msg_store_persistent"
# The transient content store and the indexes of queues that are not durable; a start wipes it.
TRANSIENT_NAME: Final = "msg_store_transient"
# Holds one directory per queue, with the queue's segments.
QUEUES_NAME: Final = "queues"
