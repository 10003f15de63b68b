"""Where the values of a running node come from, over its reloads."""

from collections.abc import Callable

from warrenmq.server.config.changes import changed_keys
from warrenmq.server.config.load import Loaded
from warrenmq.server.config.lookup import find_key
from warrenmq.server.config.setting import Setting
from warrenmq.server.config.settings import Config


class Sources:
    """The settings that a node has in force, by the full names of their keys.

    `read_again` reads all sources as they are now; threads may call it.
    """

    def __init__(self, in_force: dict[str, Setting], read_again: Callable[[], Loaded]) -> None:
        self.in_force = in_force
        self.read_again = read_again

    def take(self, config: Config, loaded: Loaded) -> None:
        """Note that the node now runs with `config`: with all of `loaded` that it could take.

        A setting that waits for a restart leaves the one before it in force.
        """
        waiting = {key.field for key in changed_keys(config, loaded.config)}
        kept = {name: each for name, each in self.in_force.items() if _field(name) in waiting}
        taken = {
            name: each for name, each in loaded.in_force.items() if _field(name) not in waiting
        }
        self.in_force = kept | taken


def _field(name: str) -> str:
    return find_key(name).field
