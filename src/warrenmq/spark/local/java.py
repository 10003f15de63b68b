"""Checks the packages and the Java that Spark needs, with an error that says what to install.

PySpark itself only says "Java gateway process exited".
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

JAVA_VERSION_MIN: Final = 17
_JAVA_TIMEOUT_S: Final = 30
_HOW_TO_INSTALL: Final = "install for example the package openjdk-17-jre-headless, or set JAVA_HOME"


class SparkUnavailableError(RuntimeError):
    """Something Spark needs is missing. The text is one line that says what to install."""


def require_spark() -> None:
    """Raise SparkUnavailableError unless pyspark, pyarrow, numpy and Java 17 or newer are there."""
    require_packages()
    require_java()


def require_packages() -> None:
    """Raise SparkUnavailableError unless pyspark, pyarrow and numpy are installed."""
    for module in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(module) is None:
            raise SparkUnavailableError(f"{module} is not installed: pip install 'warrenmq[spark]'")


def require_java() -> None:
    """Raise SparkUnavailableError unless the Java that Spark would start is new enough."""
    java = java_path()
    text = version_text(java)
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        raise SparkUnavailableError(f"{java} does not tell its version: {_HOW_TO_INSTALL}")
    # Java up to version 8 reports itself as 1.x.
    version = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if version < JAVA_VERSION_MIN:
        raise SparkUnavailableError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, {java} is Java {version}: {_HOW_TO_INSTALL}"
        )


@functools.cache
def version_text(java: str) -> str:
    """What `java -version` prints; asked once, because a job asks several times.

    Raises SparkUnavailableError when it cannot be run.
    """
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailableError(f"{java} cannot be run ({error}): {_HOW_TO_INSTALL}") from None
    return result.stderr + result.stdout


def java_path() -> str:
    """Path of the java that Spark's launcher runs: in JAVA_HOME, else the one on PATH.

    Raises SparkUnavailableError when there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not java.exists():
            raise SparkUnavailableError(
                f"JAVA_HOME is set, but there is no {java}: {_HOW_TO_INSTALL}"
            )
        return str(java)
    on_path = shutil.which("java")
    if on_path is None:
        raise SparkUnavailableError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and there is no java on PATH: {_HOW_TO_INSTALL}"
        )
    return on_path
