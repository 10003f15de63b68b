"""Codes of requests that the broker refuses, as the admin protocol sends them in `ErrorReply`."""

from typing import Final

# A request that is no valid one.
BAD_REQUEST: Final = "bad_request"
ACCESS_REFUSED: Final = "access_refused"
# A queue, a group, a sink or anything else that the request names does not exist.
NOT_FOUND: Final = "not_found"
# The queue that the request names has no mirrors.
NOT_MIRRORED: Final = "not_mirrored"
# A user, or a vhost, that the request names does not exist.
NO_SUCH_USER: Final = "no_such_user"
NO_SUCH_VHOST: Final = "no_such_vhost"
# The request would create a thing that exists already.
EXISTS: Final = "exists"
# A value that the request sets is not a valid one.
INVALID: Final = "invalid"
# The state of what the request names forbids it.
PRECONDITION: Final = "precondition"
# Another node of the cluster, which the request needs, does not answer.
UNREACHABLE: Final = "unreachable"
# Somebody else has opened the reader group since.
FENCED: Final = "fenced"
# Another node has become the master of the queue; it goes on with the reader group.
MOVED: Final = "moved"
# Messages that a reader group has reserved, or wants to read again, are gone.
DATA_LOSS: Final = "data_loss"
# The broker could not make the request durable, for want of disk space for example. Nothing is
# lost; a retry may succeed.
STORAGE_FAILED: Final = "storage_failed"
# Memory or disk of the broker is short, and the request has waited for as long as it may.
NO_ROOM: Final = "no_room"
# A fault of the broker stopped the request half-way; the broker's log has the details.
INTERNAL: Final = "internal_error"
# Some messages of a sink's batch would reach no queue.
UNROUTABLE: Final = "unroutable"
