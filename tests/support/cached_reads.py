"""Whether the file system of the tests has reads that never wait for the disk."""

import errno
import os
from pathlib import Path

from tests.support.skips import does_not_apply


def need_cached_reads(directory: Path) -> None:
    """Skip the test unless files in `directory` can be read with RWF_NOWAIT."""
    flag = getattr(os, "RWF_NOWAIT", 0)
    path = directory / "cached-reads"
    path.write_bytes(b"x")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if flag:
            os.preadv(descriptor, [bytearray(1)], 0, flag)
            return
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    finally:
        os.close(descriptor)
        path.unlink()
    does_not_apply("neither this system nor its file systems have RWF_NOWAIT")
