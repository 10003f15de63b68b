"""Dies before the n-th change in an object store: an upload, a copy or a deletion.

As a program it runs a command of `warren` and kills itself by SIGKILL then:
`python -m tests.support.stores.dying_store N COMMAND...`.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from warrenmq.pipeline import places

_CHANGES = ("open_output_stream", "copy_file", "delete_file", "delete_dir_contents")


class DyingSystem:
    """pyarrow's file systems; `install` puts it in their place."""

    def __init__(self, after: int, die: Callable[[], None]) -> None:
        self.left = after
        self._die = die
        self._real = places.pyarrow_system

    def __call__(self, scheme: str, authority: str) -> Any:
        return _Counted(self, self._real(scheme, authority))

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            self._die()


class _Counted:
    def __init__(self, dying: DyingSystem, system: Any) -> None:
        self._dying = dying
        self._system = system

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGES:
            self._dying.count()
        return getattr(self._system, name)


def main() -> None:
    """Run the command."""
    from warrenmq.cli import main as warren

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    places.pyarrow_system = DyingSystem(int(sys.argv[1]), die)  # type: ignore[assignment]  # called alike
    sys.argv = ["warren", *sys.argv[2:]]
    warren()


if __name__ == "__main__":
    main()
