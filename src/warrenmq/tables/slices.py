"""Slices of a buffer as an Arrow binary array, with one copy and no loop over them in Python."""

from typing import Any

import numpy as np
import pyarrow as pa

from warrenmq.tables.file_scan import Array


def slices(data: Any, starts: Array, ends: Array) -> Any:
    """The bytes data[start:end] for each of `starts` and `ends`. Equal slices may repeat; others must not overlap.

    An array over all of `data` is made whose elements are, by turns, a slice and what lies between it and the next;
    every second one is taken. `data` must be smaller than 2 GiB.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    if np.all(starts[1:] > starts[:-1]):
        wanted = np.arange(0, 2 * count, 2)
    else:
        starts, first, inverse = np.unique(starts, return_index=True, return_inverse=True)
        ends = ends[first]
        wanted = 2 * inverse
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers).take(pa.array(wanted))
