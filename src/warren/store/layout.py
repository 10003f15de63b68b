"""Names of the directories in a vhost's store."""

from typing import Final

# Contents that outlive a restart, and what is wiped by one: contents, and the indexes of queues that are not durable.
PERSISTENT_NAME: Final = "msg_store_persistent"
TRANSIENT_NAME: Final = "msg_store_transient"
# One directory for each queue's segments.
QUEUES_NAME: Final = "queues"
