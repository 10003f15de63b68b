"""Syncs that the kernel does while the caller goes on: Linux's asynchronous I/O, `io_submit(2)`.

A worker of the kernel syncs the file as `fdatasync` would do, and makes a descriptor readable that
an event loop can wait for. So no thread of this process has to be woken, to take the interpreter
over from the loop, and to wake the loop. The C library has no functions for these calls.
"""

import ctypes
import errno
import os
from typing import Final

# Numbers of io_setup, io_destroy and io_submit.
_CALLS: Final = {"x86_64": (206, 207, 209), "aarch64": (0, 1, 2)}
# IOCB_CMD_FDSYNC: from Linux 4.18 on.
_SYNC: Final = 3
# IOCB_FLAG_RESFD: the end of the request is signalled to an eventfd.
_SIGNALS: Final = 1

# Magic number and features of the only layout of a ring so far.
_LAYOUT: Final = (0xA10A10A1, 1, 0)

_libc = ctypes.CDLL(None, use_errno=True)


class _Request(ctypes.Structure):
    """Linux's struct iocb on a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event", ctypes.c_uint32),
    )


class _Result(ctypes.Structure):
    """Linux's struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class _Ring(ctypes.Structure):
    """Linux's struct aio_ring: results lie behind it, in memory that the kernel shares with us."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("head", ctypes.c_uint32),
        ("tail", ctypes.c_uint32),
        ("magic", ctypes.c_uint32),
        ("compatible", ctypes.c_uint32),
        ("incompatible", ctypes.c_uint32),
        ("header_bytes", ctypes.c_uint32),
    )


class KernelSyncs:
    """One sync at a time. Raises OSError where the system has no such syncs."""

    def __init__(self) -> None:
        calls = _CALLS.get(os.uname().machine)
        if calls is None or ctypes.sizeof(ctypes.c_void_p) != 8 or not hasattr(os, "eventfd"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        setup, self._destroy, self._submit = (ctypes.c_long(number) for number in calls)
        context = ctypes.c_ulong(0)
        _call(setup, ctypes.c_uint(1), ctypes.byref(context))
        self._context = context
        self._ring = _Ring.from_address(context.value)
        ring = self._ring
        if (ring.magic, ring.compatible, ring.incompatible) != _LAYOUT:
            _call(self._destroy, context)
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._results = (_Result * ring.size).from_address(context.value + ring.header_bytes)
        # Readable when the sync is done.
        self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = _Request(opcode=_SYNC, flags=_SIGNALS, event=self.event)
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))
        self._one = ctypes.c_long(1)

    def begin(self, descriptor: int) -> None:
        """Let the kernel sync the open file `descriptor`; it may be closed meanwhile.

        Raises OSError where the kernel cannot.
        """
        self._request.descriptor = descriptor
        _call(self._submit, self._context, self._one, self._requests)

    def end(self) -> int:
        """End a sync that is done: 0, or the error number of a failed one."""
        os.eventfd_read(self.event)
        # io_getevents(2) would do the same with a system call.
        ring = self._ring
        result: int = self._results[ring.head].result
        ring.head = (ring.head + 1) % ring.size
        return -result

    def close(self) -> None:
        """Release everything; waits for a sync that is not done."""
        _call(self._destroy, self._context)
        os.close(self.event)


def _call(*arguments: object) -> None:
    if _libc.syscall(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
