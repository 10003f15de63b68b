"""Checks records that follow each other by one CRC over all of them.

`record.body_is_valid` copies each body and calls a function for it, which costs more than the CRC
itself. The CRC of a run of records can be known without that: the headers name the CRCs of the
parts, and a CRC is linear. For bytes D of n bytes and two values a and b to start from,

    crc(D, a) ^ crc(D, b) = shift(a ^ b, n)

where `shift` feeds n zero bytes to the register of a CRC. A header says crc(first 8 bytes, seed)
and crc(body, that), and thus what these bytes make of the value that the records before them have
left. One call then compares the bytes of the run with what its headers say. Damage of one record
is found as surely as by its own CRC: what it changes in the value is never shifted to nothing.

Records of more than BODY_BYTES_MAX are checked alone: the copy of such a body costs little beside
its CRC, and the tables below stay small.
"""

from typing import Final

from crc32c import crc32c
from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from warrenmq.store.records.record import (
    CRC_TABLE,
    RECORD_HEADER_BYTES,
    body_is_valid,
    read_u32,
)

# The largest body in a run.
BODY_BYTES_MAX: Final = 65535
# About so many bytes are checked at a time: they are still in the processor's cache when they are
# decoded.
RUN_BYTES: Final = 262144
# A run of fewer records costs more than a check of each.
_RECORDS_MIN: Final = 3
# Interpreted, every run does: a step through a header takes ten times as long as the copy that it
# spares.
_IS_COMPILED: Final = not __file__.endswith(".py")
# The tables have four rows of 256 values, one for each byte of a register.
_ROW_BYTES: Final = 1024
_TABLE_BYTES: Final = 4 * _ROW_BYTES
# Powers of two up to BODY_BYTES_MAX.
_POWERS: Final = 16
# The tables that shift by 4 and by 8 bytes.
_SHIFT_4: Final = 2 * _TABLE_BYTES
_SHIFT_8: Final = 3 * _TABLE_BYTES


def _shift_tables() -> bytes:
    """One table after the other: for a shift by 1, 2, 4, ... bytes."""
    tables = b""
    for power in range(_POWERS):
        # A shift is linear: the value of a byte is that of its lowest bit and that of the others.
        bits: list[i64] = []
        for bit in range(32):
            value: i64 = 1 << bit
            if power == 0:
                bits.append(read_u32(CRC_TABLE, (value & 0xFF) << 2) ^ value >> 8)
            else:
                bits.append(_applied(tables, _applied(tables, value)))
        table = BytesWriter()
        for row in range(4):
            values: list[i64] = [0]
            for byte in range(1, 256):
                lowest = (byte & -byte).bit_length() - 1
                values.append(values[byte & (byte - 1)] ^ bits[8 * row + lowest])
            for entry in values:
                write_i32_le(table, i32(entry - 0x100000000 if entry >= 0x80000000 else entry))
        tables += table.getvalue()
    return tables


def _applied(tables: bytes, value: i64) -> i64:
    return _lookup(tables, len(tables) - _TABLE_BYTES, value)


def _lookup(tables: bytes, table: i64, value: i64) -> i64:
    """The register `value`, shifted by the table at `table`."""
    return (
        i64(read_i32_le(tables, table + ((value & 0xFF) << 2)))
        ^ i64(read_i32_le(tables, table + _ROW_BYTES + ((value >> 8 & 0xFF) << 2)))
        ^ i64(read_i32_le(tables, table + 2 * _ROW_BYTES + ((value >> 16 & 0xFF) << 2)))
        ^ i64(read_i32_le(tables, table + 3 * _ROW_BYTES + ((value >> 24 & 0xFF) << 2)))
    ) & 0xFFFFFFFF


_TABLES: Final = _shift_tables()


class RunCheck:
    """Whether records of `data` are whole; `seed` is that of their file (`record.crc_seed`)."""

    def __init__(self, data: bytes, seed: int) -> None:
        self.data: bytes = data
        self.seed: int = seed
        # data[_from:_upto] is whole records.
        self._from: i64 = 0
        self._upto: i64 = 0
        # No further run is looked for before this offset: a run there has failed or was too short,
        # or its records were asked for already.
        self._alone_upto: i64 = 0

    def is_whole(self, start: i64, length: i64) -> bool:
        """True when the body of the record at `start` is whole and has its CRC.

        `length` is the result of `record_length`: header and body.
        """
        if self._from <= start and start + length <= self._upto:
            return True
        if _IS_COMPILED and start >= self._alone_upto:
            self._check_from(start)
            if start + length <= self._upto:
                return True
        return body_is_valid(self.data, start, length)

    def _check_from(self, start: i64) -> None:
        data = self.data
        seed: i64 = self.seed
        end: i64 = min(len(data), start + RUN_BYTES)
        at = start
        crc: i64 = 0
        records: i64 = 0
        while at + RECORD_HEADER_BYTES <= end:
            body_bytes = read_u32(data, at + 4)
            following = at + RECORD_HEADER_BYTES + body_bytes
            if body_bytes > BODY_BYTES_MAX or following > end:
                break
            header_crc = read_u32(data, at + 8)
            crc = header_crc ^ _lookup(_TABLES, _SHIFT_8, crc ^ seed)
            # The two CRCs of the header are bytes of the run as well. The bytes of a register are
            # fed from its lowest on.
            crc = crc ^ 0xFFFFFFFF
            crc = _lookup(_TABLES, _SHIFT_4, crc ^ _u32_le(data, at + 8))
            crc = _lookup(_TABLES, _SHIFT_4, crc ^ _u32_le(data, at + 12))
            crc = crc ^ 0xFFFFFFFF
            crc = read_u32(data, at + 12) ^ _shifted(crc ^ header_crc, body_bytes)
            at = following
            records += 1
        self._from = start
        self._alone_upto = end
        if records < _RECORDS_MIN:
            return
        run = data if start == 0 and at == len(data) else memoryview(data)[start:at]
        if crc == crc32c(run):
            self._upto = at
            self._alone_upto = at


def _u32_le(data: bytes, start: i64) -> i64:
    return i64(read_i32_le(data, start)) & 0xFFFFFFFF


def _shifted(value: i64, count: i64) -> i64:
    """The register `value` after `count` zero bytes."""
    table: i64 = 0
    while count > 0:
        if count & 1:
            value = _lookup(_TABLES, table, value)
        count >>= 1
        table += _TABLE_BYTES
    return value
