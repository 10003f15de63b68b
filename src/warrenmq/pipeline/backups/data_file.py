"""Writes a file of a backup, of messages or of runs of seq ids, with its checksum.

Each attempt of a task gives its file another name, so that an attempt of a killed run which still
writes cannot change a file that counts: one that the backup's manifest names.
"""

import contextlib
import secrets
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from warrenmq.pipeline.places import Place
from warrenmq.pipeline.result import JobError
from warrenmq.tables.data_files import DIGEST_COLUMNS, QueueSums
from warrenmq.tables.file_figures import DataFile

ROW_GROUP_ROWS: Final = 65536
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
_ZSTD_LEVEL: Final = 3


class DataFileWriter:
    """Writes the file of part `number` in `place`, which is there and durable after `finish`.

    As a context manager it removes an unfinished file.
    """

    def __init__(self, place: Place, number: int, schema: Any) -> None:
        self.rows = 0
        self._place = place
        self._name = f"part-{number:06d}-{secrets.token_hex(4)}.parquet"
        self._schema = schema
        self._file = _ChecksumFile(place.output(self._name))
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            # No dictionary for columns whose values hardly repeat: building it would be wasted
            # work.
            use_dictionary=[
                column.name for column in schema if column.name not in ("body", "checksum", "seq")
            ],
            write_statistics=[column.name for column in schema if column.name != "body"],
        )
        self._waiting: list[Any] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._sums = QueueSums()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._file.closed:
            # Close the Parquet writer first: left open, it writes the file's footer later, and its
            # error would be lost.
            with contextlib.suppress(OSError, ValueError):
                self._writer.close()
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError, JobError):
                self._place.remove([self._name])

    def write(self, batch: Any) -> None:
        """Append the rows of `batch`."""
        if batch.num_rows == 0:
            return
        if set(DIGEST_COLUMNS) <= set(self._schema.names):
            self._sums.add(batch)
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def finish(self) -> DataFile:
        """Make the file durable, and return its figures."""
        self._flush()
        self._writer.close()
        self._file.close()
        self._place.sync(self._name)
        self._place.sync_names([self._name])
        return DataFile(
            name=self._name,
            bytes=self._file.size,
            crc32c=f"{self._file.crc:08x}",
            rows=self.rows,
            queues=self._sums.by_queue(),
        )

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, schema=self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting = []
            self._waiting_rows = self._waiting_bytes = 0


class _ChecksumFile:
    """Writes to the new file `output`, with the CRC-32C of the bytes written so far."""

    def __init__(self, output: Any) -> None:
        self._output = output
        self.size = 0
        self.crc = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        view = memoryview(data)
        self._output.write(view)
        self.crc = crc32c(view, self.crc)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: `close` writes what is left."""

    def tell(self) -> int:
        """The offset of the next write."""
        return self.size

    def readable(self) -> bool:
        """False: the file is only written."""
        return False

    def writable(self) -> bool:
        """True: the file is only written."""
        return True

    def seekable(self) -> bool:
        """False: the file is written from start to end."""
        return False

    def close(self) -> None:
        """Write what is left, without a sync. The file is there when this returns."""
        self._output.close()
        self.closed = True
