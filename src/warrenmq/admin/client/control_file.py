"""The control file: how commands on the node's machine reach it without a user and a password.

A node writes `control.json` into its data directory, readable by its owner only, with a new token
at each start. Whoever can read the file is a local administrator: it could read and change the
data directory as well.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warrenmq.store.disk.roomy_file import remove_roomy, write_roomy

CONTROL_NAME: Final = "control.json"
# A user name that no user can have: names of users are not empty.
LOCAL_USER: Final = ""


class ControlFileError(Exception):
    """There is no usable control file; the text says why in one line."""


@dataclass(frozen=True)
class ControlFile:
    """Where a node listens for local commands; `address` is HOST:PORT."""

    node: str
    address: str
    token: str
    pid: int

    def __repr__(self) -> str:
        return f"ControlFile(node={self.node!r}, address={self.address!r}, pid={self.pid})"


def write_control_file(data_dir: Path, control: ControlFile) -> None:
    """Write the control file of `data_dir`, atomically. Raises OSError."""
    write_roomy(data_dir / CONTROL_NAME, json.dumps(vars(control)).encode(), 0o600)


def remove_control_file(data_dir: Path) -> None:
    """Remove the control file of a node that stops, or that has been killed. Raises OSError."""
    remove_roomy(data_dir / CONTROL_NAME)


def read_control_file(data_dir: Path) -> ControlFile:
    """The control file of the node that runs on `data_dir`. Raises ControlFileError."""
    path = data_dir / CONTROL_NAME
    try:
        values = json.loads(path.read_bytes())
        return ControlFile(
            str(values["node"]), str(values["address"]), str(values["token"]), int(values["pid"])
        )
    except FileNotFoundError:
        raise ControlFileError(f"no node runs on {data_dir.absolute()}") from None
    except PermissionError:
        raise ControlFileError(f"{path} is not readable: run the command as its owner") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ControlFileError(f"{path} is not usable: {error}") from None
