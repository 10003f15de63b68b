"""Why a message leaves its queue for good."""

from typing import Final

# A consumer has acked it, or a reader group or a sink is done with it.
ACKED: Final = 0
# A consumer has rejected it, and not to be given again.
REJECTED: Final = 1
# Its time to live is over.
EXPIRED: Final = 2
# It went to a consumer that acks nothing.
HANDED_OVER: Final = 3
PURGED: Final = 4
# Its content cannot be read any more.
LOST: Final = 5
