"""`python -m warrenmq.testing.child_node ARGUMENTS`: `warren ARGUMENTS` that ends with its parent.

The parent keeps a pipe to the standard input open. The pipe's end, also after a SIGKILL of the
parent, ends the node at once, so that no test run leaves a broker behind.
"""

import os
import threading

from warrenmq.cli import main

_STANDARD_INPUT = 0
_ORPHANED_EXIT = 1


def _end_with_parent() -> None:
    while os.read(_STANDARD_INPUT, 4096):
        pass
    # Nobody needs the data any more, so there is nothing to stop cleanly.
    os._exit(_ORPHANED_EXIT)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main()
