"""Giving free memory back to the system a little at a time, without anybody waiting for it.

glibc's malloc gives back what is free at the end of its heap. What is free between other things stays resident, and that
is what messages leave that were paged, purged or acked while others stay. malloc_trim finds all of it, but holds the
allocator's lock until it is done: up to a second for each GiB, in which nothing else runs.

So the free places are asked for: blocks are allocated, large ones first, until the heap would grow; all of them are
places that were free. The pages inside a block are given back, and when there are no more places all blocks are freed.
It needs nothing of the allocator but malloc and free, and can stop after each block.

Only the heap of the calling thread is looked at, which has all messages but those that come from disk.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from typing import Final

# How long a step takes (s).
STEP_S: Final = 0.0005
# Blocks that are asked for, with the allocator's own part. Larger ones it would map, not look for; smaller ones may have
# no whole page inside.
_BLOCK_BYTES: Final = (65536, 32768, 16384, 8192, 6144)
_OVERHEAD_BYTES: Final = 16
# It sorts no more than 10,000 free places for a request and may then not see one that fits: only after so many requests
# in vain there is none.
_PATIENCE: Final = 64
# Blocks that are freed between two looks at the time.
_FREE_SLICE: Final = 64
_PAGE_BYTES: Final = mmap.PAGESIZE


class HeapRelease:
    """One way through the heap after the other: `begin`, then `step` while it returns True."""

    def __init__(self, libc: ctypes.PyDLL) -> None:
        # PyDLL: with the interpreter's lock held, since letting it go takes longer than the calls do.
        self._malloc: Callable[[int], int | None] = libc.malloc
        libc.malloc.restype = ctypes.c_void_p
        libc.malloc.argtypes = [ctypes.c_size_t]
        self._free: Callable[[int], object] = libc.free
        libc.free.restype = None
        libc.free.argtypes = [ctypes.c_void_p]
        self._give_back: Callable[[int, int, int], int] = libc.madvise
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._end_of_heap: Callable[[int], int] = libc.sbrk
        libc.sbrk.restype = ctypes.c_void_p
        libc.sbrk.argtypes = [ctypes.c_ssize_t]
        self._blocks: list[int] = []
        self._kind = len(_BLOCK_BYTES)
        self._patience = 0

    def begin(self) -> None:
        """Start over."""
        self._kind = 0
        self._patience = _PATIENCE

    def step(self) -> bool:
        """Go on for about STEP_S; False when all is done."""
        until_s = time.perf_counter() + STEP_S
        while self._kind < len(_BLOCK_BYTES):
            if not self._take_one(_BLOCK_BYTES[self._kind] - _OVERHEAD_BYTES):
                self._patience -= 1
                if self._patience <= 0:
                    # Everything is sorted by now.
                    self._kind += 1
            if time.perf_counter() >= until_s:
                return True
        while self._blocks:
            self._free_some(_FREE_SLICE)
            if time.perf_counter() >= until_s:
                break
        return len(self._blocks) > 0

    def end(self) -> None:
        """Give up what is under way."""
        self._kind = len(_BLOCK_BYTES)
        self._free_some(len(self._blocks))

    def _take_one(self, size: int) -> bool:
        top = self._end_of_heap(0)
        address = self._malloc(size)
        if address is None:
            return False
        if address >= top or self._end_of_heap(0) != top:
            # There was no place for it.
            self._free(address)
            return False
        self._blocks.append(address)
        first = -(-address // _PAGE_BYTES) * _PAGE_BYTES
        length = (address + size) // _PAGE_BYTES * _PAGE_BYTES - first
        if length > 0:
            self._give_back(first, length, mmap.MADV_DONTNEED)
        return True

    def _free_some(self, count: int) -> None:
        for _ in range(min(count, len(self._blocks))):
            self._free(self._blocks.pop())


def find_heap_release() -> HeapRelease | None:
    """For the calling thread's heap, where the allocator is glibc's."""
    libc = ctypes.PyDLL(None)
    return HeapRelease(libc) if hasattr(libc, "malloc_trim") else None
