"""A file system that a test may fill: an ext4 image of 200 MiB, mounted at a given path."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE_BYTES = 200 * 1024 * 1024
_STEP_BYTES = 1024 * 1024


class SmallDisk:
    """The file system mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no free byte."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT)
        try:
            offset = os.fstat(descriptor).st_size
            step = _STEP_BYTES
            while step >= 512:
                try:
                    os.posix_fallocate(descriptor, offset, step)
                    offset += step
                except OSError:
                    step //= 2
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Free the space that `fill` has taken."""
        self._filler.unlink()


@contextmanager
def mounted_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount a new file system at `path`; its image is beside it. Skips the test where it cannot."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a file system of its own needs root and mkfs.ext4")
    image = path.with_suffix(".ext4")
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    # `-m 0` reserves no space for root, who runs the node here.
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
    path.mkdir()
    mount = subprocess.run(["mount", "-o", "loop", image, path], capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mount.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", path], check=True)
        image.unlink()
