"""Counting sync calls in strace's output, where calls of threads may interrupt each other."""

from bench.syncs import count_syncs

OUTPUT = """\
811 fdatasync(9</data/journal/1.wal>) = 0
811 fdatasync(9</data/journal/1.wal> <unfinished ...>
812 fsync(12</data/node.sqlite-wal>)  = 0
811 <... fdatasync resumed>)          = 0
813 fdatasync(14</data/msg_store_persistent/3.rdq>) = -1 EIO (Input/output error)
812 fsync(5</data/journal>)           = 0
"""


def test_each_call_counts_once_under_its_kind_of_file() -> None:
    assert count_syncs(OUTPUT) == {".wal": 2, ".sqlite-wal": 1, ".rdq": 1, "journal": 1}
    assert count_syncs("") == {}
