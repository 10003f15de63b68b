"""The command `compact`: frees the garbage of the content stores, one file after the other."""

from typing import Final, get_args

from warrenmq.admin.protocol.stores import CompactionBegun, CompactStores, StoreName
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output, Table
from warrenmq.cli.control.parsing import Option

GROUP: Final = "Nodes"
_STORES: Final[tuple[StoreName, ...]] = get_args(StoreName)


def _compact(run: Run) -> Output:
    vhost = run[0] if run.arguments else None
    request = CompactStores(vhost=vhost, store=_store(run))
    begun = run.ask(request, CompactionBegun)
    rows = [[each.vhost, each.store, each.files, each.garbage_bytes] for each in begun.stores]
    return Table(("vhost", "store", "files", "garbage_bytes"), rows)


def _store(run: Run) -> StoreName | None:
    name = run.text("store")
    if not name:
        return None
    found = next((each for each in _STORES if each == name), None)
    if found is None:
        raise CommandError(f"Error:\nstore {name} is not one of {', '.join(_STORES)}")
    return found


COMMANDS: Final = (
    Command(
        "compact", GROUP, "Frees the garbage in stored large messages", _compact,
        "[<vhost>]", (0, 1),
        options=(Option("store", "text", "", "persistent or transient alone", "store"),),
        is_table=True, takes_timeout=True, banner=lambda run: f"Compacting node {run.node} ...",
    ),
)  # fmt: skip
