"""The archive of the classes that Spark loads: it halves the start of Spark's JVM.

A JVM that starts Spark spends most of its time on 15,000 classes, which it reads from 250 jars,
parses and verifies. Java can map them from one file instead (a dynamic archive of AppCDS). The file
has about 185 MB and belongs to one Java and one set of jars, so it is no part of warren's package:
class_training.py makes it on each machine, in the cache directory of the user.

* **When it is made.** The first process that starts Spark and finds no archive leaves a process of
  the lowest priority behind, which makes it. So nobody waits for it, and it takes no memory beside
  a job. A failed attempt is repeated a day later at the earliest.
* **What it needs.** Java uses an archive only with the class path of its making. Spark has its
  configuration directories on that path, and Java makes no archive with directories there. So
  there is no archive where Spark has such a directory.
* **What it cannot break.** The archive gets its name when it is whole. Java ignores one of another
  Java or of other jars, and with `VerifySharedSpaces` one with damaged bytes. A file that was cut
  would end the JVM, so the name has the size.
"""

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warrenmq.spark.local.java import SparkUnavailableError, java_path, version_text

# The environment variable that switches the archive off, with this value.
SWITCH: Final = "WARREN_CLASS_ARCHIVE"
OFF: Final = "off"

# The option of a JVM that says nothing about archives.
QUIETLY: Final = "-Xlog:cds*=off"

_SUFFIX: Final = ".jsa"
# Seconds after which an archive that could not be made is tried again.
_RETRY_S: Final = 86400.0
# The lowest: the program after the first job takes what others leave.
_PRIORITY: Final = "19"
# Most archives that are kept: one for each environment with a Spark that somebody may use.
_KEPT: Final = 4
# Variables that add to the class path of Spark's JVM.
_CLASS_PATHS: Final = (
    "SPARK_CONF_DIR",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
)


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one Java with one set of jars; the file may be missing."""

    directory: Path
    # A hash of all that an archive depends on.
    key: str

    @property
    def lock(self) -> Path:
        """The file that is locked while the archive is made, and changed when that begins."""
        return self.directory / f"{self.key}.lock"

    def name(self, size: int) -> Path:
        """The path of the whole archive, which has `size` bytes."""
        return self.directory / f"{self.key}-{size}{_SUFFIX}"

    def find(self) -> Path | None:
        """The archive, or None when it was not made or was cut."""
        for path in self.directory.glob(f"{self.key}-*{_SUFFIX}"):
            with contextlib.suppress(OSError):
                if path == self.name(path.stat().st_size):
                    return path
        return None

    def keep(self, made: Path) -> None:
        """Give the whole archive in the file `made` its name, and delete archives of no use.

        Archives that were made long ago belong to a Java or a Spark of the past.
        """
        made.rename(self.name(made.stat().st_size))
        archives = list(self.directory.glob(f"*{_SUFFIX}"))
        archives.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in archives[_KEPT:]:
            path.unlink()

    def is_due(self) -> bool:
        """Whether it should be made: the directory is writable, and nobody has tried lately."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            tried_s = self.lock.stat().st_mtime
        except FileNotFoundError:
            return os.access(self.directory, os.W_OK)
        except OSError:
            return False
        return time.time() - tried_s > _RETRY_S and os.access(self.directory, os.W_OK)


def class_archive() -> ClassArchive | None:
    """The archive of the Java and the Spark of this process; None where there can be none."""
    if any(os.environ.get(name) for name in _CLASS_PATHS):
        return None
    spark = _spark_home()
    if spark is None or not (spark / "jars").is_dir() or (spark / "conf").exists():
        return None
    try:
        java = java_path()
        parts = [os.path.realpath(java), version_text(java), str(spark)]
    except SparkUnavailableError:
        return None
    with os.scandir(spark / "jars") as jars:
        for jar in sorted(jars, key=lambda jar: jar.name):
            state = jar.stat()
            parts.append(f"{jar.name} {state.st_size} {state.st_mtime_ns}")
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
    return ClassArchive(_cache() / "warren" / "spark-classes", key)


def archive_options() -> str:
    """Options of the JVM that use the archive, or "" when there is none yet.

    In the second case the archive is made when this process has ended.
    """
    if os.environ.get(SWITCH, "") == OFF:
        return ""
    archive = class_archive()
    path = archive.find() if archive is not None else None
    if path is None:
        if archive is not None and archive.is_due():
            _make_at_exit()
        return ""
    return options_with(path)


def options_with(path: Path) -> str:
    """Options of a JVM that uses the archive in the file `path`."""
    # Without the log option the JVM prints a line on standard output when it ignores the archive.
    return f'"-XX:SharedArchiveFile={path}" -XX:+VerifySharedSpaces {QUIETLY}'


@functools.cache
def _make_at_exit() -> None:
    """Start the process that makes the archive, once, at the end of this process."""
    atexit.register(
        subprocess.Popen,
        ["nice", "-n", _PRIORITY, sys.executable, "-m", "warrenmq.spark.local.class_training"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _spark_home() -> Path | None:
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def _cache() -> Path:
    """The user's cache directory, as the XDG specification names it."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~/.cache"))
