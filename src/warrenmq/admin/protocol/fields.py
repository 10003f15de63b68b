"""Types of numbers and names in the admin protocol, with the bounds that a request must keep."""

from typing import Annotated

from msgspec import Meta

Position = Annotated[int, Meta(ge=0, le=1 << 62)]
# A batch that precedes another; -1 = none.
BatchBefore = Annotated[int, Meta(ge=-1, le=1 << 62)]
Count = Annotated[int, Meta(ge=1, le=1 << 62)]
# Wait of a long poll in ms; a longer one would look like a dead peer.
WaitMs = Annotated[int, Meta(ge=0, le=60_000)]
# Wait of a client for room, in ms.
RoomMs = Annotated[int, Meta(ge=0, le=86_400_000)]
FetchBytes = Annotated[int, Meta(ge=1, le=64 * 1024 * 1024)]
FetchMessages = Annotated[int, Meta(ge=1, le=100_000)]
GroupName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._-]{1,128}\Z")]
ShortStr = Annotated[bytes, Meta(max_length=255)]
# The priority that a level of a priority queue is for.
Level = Annotated[int, Meta(ge=0, le=255)]
QueueCount = Annotated[int, Meta(ge=1, le=1000)]
