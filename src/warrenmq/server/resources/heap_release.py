"""Gives free heap memory back to the system in small steps, so that nothing has to wait for it.

glibc's malloc gives back free memory at the end of its heap. Free memory between live blocks stays
resident, and messages that were paged, purged or acked leave just such gaps. malloc_trim finds all
of them, but holds the allocator's lock until it is done: up to a second for each GiB, in which
nothing else runs.

This module asks malloc for the gaps instead. It allocates blocks, large ones first, until the heap
would grow: each such block was a gap. It gives the pages inside each block back to the system, and
frees all blocks when no gap is left. It needs only malloc and free of the allocator, and can stop
after each block.

Only the heap of the calling thread is searched. That heap has all messages but those loaded from
disk.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from typing import Final

# Duration of one step (s).
STEP_S: Final = 0.0005
# Sizes of the blocks to ask for (bytes), malloc's own overhead included. Larger blocks malloc would
# map instead of taking a gap; smaller ones may have no whole page inside.
_BLOCK_BYTES: Final = (65536, 32768, 16384, 8192, 6144)
_OVERHEAD_BYTES: Final = 16
# Failed requests in one pass before one more failure proves that a size has no gap left: malloc
# sorts at most 10,000 free chunks for a request, so an earlier failure may have missed one that
# fits.
_PATIENCE: Final = 64
# Blocks to free between two checks of the time.
_FREE_SLICE: Final = 64
_PAGE_BYTES: Final = mmap.PAGESIZE


class HeapRelease:
    """One pass through the heap after another: call `begin`, then `step` while it returns True."""

    def __init__(self, libc: ctypes.PyDLL) -> None:
        # A PyDLL keeps the interpreter's lock during a call: releasing it takes longer than the
        # calls do.
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
        """Start a pass from the largest block size."""
        self._kind = 0
        self._patience = _PATIENCE

    def step(self) -> bool:
        """Continue the pass for about STEP_S; False when the pass is complete."""
        until_s = time.perf_counter() + STEP_S
        while self._kind < len(_BLOCK_BYTES):
            if not self._take_one(_BLOCK_BYTES[self._kind] - _OVERHEAD_BYTES):
                self._patience -= 1
                if self._patience <= 0:
                    # malloc has sorted all its free chunks, so this size has no gap left.
                    self._kind += 1
            if time.perf_counter() >= until_s:
                return True
        while self._blocks:
            self._free_some(_FREE_SLICE)
            if time.perf_counter() >= until_s:
                break
        return len(self._blocks) > 0

    def end(self) -> None:
        """Abort the pass and free all its blocks."""
        self._kind = len(_BLOCK_BYTES)
        self._free_some(len(self._blocks))

    def _take_one(self, size: int) -> bool:
        top = self._end_of_heap(0)
        address = self._malloc(size)
        if address is None:
            return False
        if address >= top or self._end_of_heap(0) != top:
            # The block is no gap: the heap grew for it.
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
    """A HeapRelease for the calling thread's heap, or None when the allocator is not glibc's."""
    libc = ctypes.PyDLL(None)
    return HeapRelease(libc) if hasattr(libc, "malloc_trim") else None
