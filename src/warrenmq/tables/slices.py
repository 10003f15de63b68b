"""Makes an Arrow binary array of slices of a buffer, with one copy and without a loop in Python."""

from typing import Any

import numpy as np
import pyarrow as pa

from warrenmq.tables.file_scan import Array


def slices(data: Any, starts: Array, ends: Array) -> Any:
    """The bytes data[start:end] for each pair of `starts` and `ends`, as a binary array.

    Equal slices may repeat; others must not overlap. `data` must be smaller than 2 GiB. The
    elements of an array over all of `data` are, in turn, a slice and the bytes between it and the
    next slice; every second element is taken.
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
