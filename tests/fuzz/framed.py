"""Damages streams of frames, so that the frames before and behind the damage are still read.

Plain damage ends a stream at its first wrong length. Here whole frames are lost, repeated, moved
and taken from other streams, and payloads are damaged inside frames whose lengths fit again.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.mutator import mutate

# The pieces before the payload, the payload itself, and what ends the frame.
Frame = tuple[bytes, bytes, bytes]


@dataclass(frozen=True)
class FrameLayout:
    """A frame: `lead` bytes, the length of the payload (u32), `kind` bytes, payload, `tail` bytes.

    The first `spared` frames of a stream, such as its login, are damaged in each eighth input
    only.
    """

    lead: int = 0
    kind: int = 0
    tail: int = 0
    spared: int = 0

    def split(self, data: bytes) -> list[Frame]:
        """The whole frames of `data`; what is behind them is the payload of a last one."""
        frames: list[Frame] = []
        at = 0
        while at + self.lead + 4 + self.kind <= len(data):
            size = int.from_bytes(data[at + self.lead : at + self.lead + 4], "big")
            start = at + self.lead + 4 + self.kind
            end = start + size
            if end + self.tail > len(data):
                break
            frames.append((data[at:start], data[start:end], data[end : end + self.tail]))
            at = end + self.tail
        return frames

    def join(self, frames: list[Frame]) -> bytes:
        """The stream of `frames`, with the lengths that their payloads have."""
        return b"".join(
            before[: self.lead]
            + len(payload).to_bytes(4, "big")
            + before[self.lead + 4 :]
            + payload
            + after
            for before, payload, after in frames
        )

    def mutator(self) -> Callable[[random.Random, bytes, bytes], bytes]:
        """Damages streams of this layout."""
        return self._mutate

    def _mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        frames = self.split(data)
        spared = self.spared if rng.randrange(8) else 0
        if len(frames) <= spared:
            return mutate(rng, data, other)
        first, rest = frames[:spared], frames[spared:]
        others = self.split(other)[spared:] or rest.copy()
        if rng.randrange(6) == 0:
            return self.join(first) + mutate(rng, self.join(rest), self.join(others))
        for _ in range(rng.choice((1, 1, 2, 3))):
            self._damage(rng, rest, others)
        return self.join(first + rest)

    def _damage(self, rng: random.Random, rest: list[Frame], others: list[Frame]) -> None:
        at = rng.randrange(len(rest) + 1)
        accident = rng.randrange(8)
        if accident == 0:
            rest.insert(at, rng.choice(others))
        elif at == len(rest):
            return
        elif accident == 1:
            del rest[at]
        elif accident == 2:
            rest.insert(rng.randrange(len(rest) + 1), rest[at])
        elif accident == 3:
            before, payload, after = rest[at]
            rest[at] = (_flipped(rng, before), payload, after)
        else:
            before, payload, after = rest[at]
            rest[at] = (before, mutate(rng, payload, rng.choice(others)[1]), after)


def _flipped(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
