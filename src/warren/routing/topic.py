"""Topic exchanges: binding keys are patterns of words, `*` for one word, `#` for any number of them."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warren.routing.binding import Binding
from warren.routing.destination import Destination
from warren.routing.exchange import Exchange
from warren.routing.topic_trie import TopicTrie
from warren.wire.field_table import Field

TOPIC: Final = b"topic"


@final
@mypyc_attr(native_class=True)
class TopicExchange(Exchange):
    """Bindings in a trie of their keys' words."""

    def __init__(
        self, name: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
    ) -> None:
        super().__init__(name, TOPIC, durable, auto_delete, internal, arguments)
        self._trie: TopicTrie = TopicTrie()

    def add(self, binding: Binding) -> None:
        self._trie.add(binding)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding)

    def match(self, key: bytes, headers: dict[str, Field], found: list[Destination]) -> None:
        self._trie.match(key, found)
