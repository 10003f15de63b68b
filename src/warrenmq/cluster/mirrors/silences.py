"""How long nodes that share mirrored queues wait for each other before they act alone (ms).

The order of the three makes that only one of them acts. The living master leaves out a silent
mirror first. A master that cannot, because it does not reach the store of the cluster either, hands
out no more messages from then on. Only after that a mirror takes over.
"""

from typing import Final

# A mirror that has been silent for this time, or keeps a ring message waiting and has reported
# nothing for this time, is left out by its master (F4).
SILENT_MS: Final = 2600
# A master hands out messages for this time after the last of its pings that a mirror has heard.
HAND_OUT_MS: Final = 3000
# Silence of a master after which a mirror takes over, so that queues go on within 4 s (F4). It is
# longer than `SILENT_MS` by more than the time between two pings, by which the silences of the two
# sides of a broken link may differ: there the living master wins.
MASTER_SILENT_MS: Final = 3300
