"""What Spark and the jobs read, for fuzzing: blocks, offsets, records, RabbitMQ's files."""

import json
import random
import re
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from tests.fuzz.campaign import Reader
from tests.fuzz.mutator import mutate
from tests.fuzz.store_readers import mutate_file, number_in
from tests.support.stores.made_files import STORE_ID
from warrenmq.spark.columns import default_schema
from warrenmq.spark.streams.offsets import OffsetError, OffsetFormat
from warrenmq.store.records.record import FILE_HEADER_BYTES, crc_seed
from warrenmq.tables.blocks import BlockBatches
from warrenmq.tables.rabbitmq.damage import Damage
from warrenmq.tables.rabbitmq.external_term import TermError, decode_term
from warrenmq.tables.rabbitmq.import_plan import NotADataDirectory, plan
from warrenmq.tables.rabbitmq.reading import read
from warrenmq.tables.rabbitmq.stored_message import decode_message
from warrenmq.tables.scan import RecordScan

_FILE_NAME: Final = re.compile(r"[\w.]+(/[\w.]+)*")


def read_record_block(data: bytes) -> None:
    """A block of messages as a Spark stream gets it, as Arrow with all columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: Any = to_arrow_schema(default_schema(True, True), timezone="UTC")
    batch: pa.RecordBatch = BlockBatches(schema, "/", "q").build(data)
    batch.validate(full=True)


def read_records(data: bytes) -> None:
    """A file of any kind, as the source of stores scans it; CRCs may be ignored."""
    seed = crc_seed(STORE_ID, number_in(data) & (1 << 63) - 1)
    for verify in (True, False):
        scan = RecordScan(seed, verify)
        scan.feed(data[FILE_HEADER_BYTES:], FILE_HEADER_BYTES, True)
        scan.take()


def read_offset(data: bytes) -> None:
    """An offset in a checkpoint of Spark, which hands a reader any JSON object."""
    try:
        offset = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(offset, dict):
        OffsetFormat("group", "/").decode(offset)


def read_rabbitmq_message(data: bytes) -> None:
    """A message in RabbitMQ's files."""
    decode_term(data)
    decode_message(data)


def read_rabbitmq_directory(data: bytes) -> None:
    """A data directory of RabbitMQ: damage is reported, and costs only what it hit."""
    files = msgspec.msgpack.decode(data, type=dict[str, bytes])
    damage: list[Damage] = []
    with tempfile.TemporaryDirectory(prefix="warren-fuzz-") as made:
        for name, content in files.items():
            if _FILE_NAME.fullmatch(name) and ".." not in name:
                path = Path(made, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        for partition in plan(Path(made)).partitions:
            for batch in read(partition, damage.append):
                batch.validate(full=True)


def mutate_rabbitmq_directory(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Damage one or two files of a directory."""
    files = msgspec.msgpack.decode(data, type=dict[str, bytes])
    others = sorted(msgspec.msgpack.decode(other, type=dict[str, bytes]).values())
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(files))
        if rng.randrange(12) == 0:
            del files[name]
            if not files:
                break
        else:
            files[name] = mutate(rng, files[name], rng.choice(others))
    return msgspec.msgpack.encode(files)


_ARROW_BYTES: Final = 16 << 20

READERS = {
    "record-block": Reader(read_record_block, (ValueError,), mutate_file, fixed_bytes=_ARROW_BYTES),
    "records": Reader(read_records, (), mutate_file),
    "offset": Reader(read_offset, (OffsetError,)),
    "rabbitmq-message": Reader(read_rabbitmq_message, (TermError,)),
    "rabbitmq-directory": Reader(
        read_rabbitmq_directory,
        (NotADataDirectory,),
        mutate_rabbitmq_directory,
        fixed_bytes=_ARROW_BYTES,
    ),
}
