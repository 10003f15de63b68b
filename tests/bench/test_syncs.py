"""Counting sync calls in strace's output, where calls of threads may interrupt each other."""

from bench.syncs import count_syncs

OUTPUT = """\
811 fdatasync(9</data/journal/1.wal>) = 0
811 fdatasync(9</data/journal/1.wal> <unfinished ...>
812 fsync(12</data/node.sqlite-wal>)  = 0
811 <... fdatasync resumed>)          = 0
811 pwritev2(9</data/journal/1.wal>, [{iov_base="WR", iov_len=2}], 1, 40, RWF_DSYNC) = 2
811 pwritev2(9</data/journal/1.wal>, [{iov_base="WR"...}], 1, 42, RWF_DSYNC <unfinished ...>
811 pwritev2(8</data/queues/1/0.idx>, [{iov_base="WR"...}], 1, 40, 0) = 90
813 fdatasync(14</data/msg_store_persistent/3.rdq>) = -1 EIO (Input/output error)
810 io_submit(0x7f47, 1, [{aio_data=0, aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=9</data/journal/1.wal>}]) = 1
812 fsync(5</data/journal>)           = 0
"""


def test_each_call_counts_once_under_its_kind_of_file() -> None:
    assert count_syncs(OUTPUT) == {".wal": 5, ".sqlite-wal": 1, ".rdq": 1, "journal": 1}
    assert count_syncs("") == {}
