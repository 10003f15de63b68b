"""Finds the node of this machine for a command that names none: the rule of all commands.

The directory that the command names, or else WARREN_DATA_DIR, must be the data directory of a node
that runs. Without both it is the first of the usual directories in which a node runs.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from warrenmq.admin.client.control_file import (
    CONTROL_NAME,
    ControlFile,
    ControlFileError,
    read_control_file,
)

DATA_DIR_VARIABLE: Final = "WARREN_DATA_DIR"
_USUAL_DATA_DIRS: Final = ("/var/lib/warren", "warren-data")


class LocalNode(NamedTuple):
    """A node of this machine: its control file, and the absolute path of that file."""

    path: Path
    control: ControlFile


def find_local_node(data_dir: str = "") -> LocalNode:
    """The node of `data_dir`, or else the one that the rule above finds.

    Raises ControlFileError, whose text has the absolute paths of all directories that were tried.
    """
    named = data_dir or os.environ.get(DATA_DIR_VARIABLE, "")
    directories = [Path(each).absolute() for each in ([named] if named else _USUAL_DATA_DIRS)]
    for directory in directories:
        path = directory / CONTROL_NAME
        # A directory that cannot be searched is a node's as well: reading its file says so.
        if named or _may_be_there(path):
            return LocalNode(path, read_control_file(directory))
    raise ControlFileError(f"no node runs on {' or '.join(map(str, directories))}")


def _may_be_there(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True
