"""The table of all kinds of definitions is complete."""

from tests.broker.definitions.test_metadata_sqlite import EVERYTHING
from warrenmq.broker.definitions.kinds import KIND_OF, KINDS
from warrenmq.broker.definitions.metadata import Change, PutQueuePart


def test_every_attribute_of_a_definition_is_kept() -> None:
    """Each attribute is in the table of the node's own store, or in the key or value in etcd."""
    made: dict[type[Change], Change] = {
        type(change): change for change in [*EVERYTHING, PutQueuePart(b"/", 3, 1, 7)]
    }
    assert made.keys() == {kind.put for kind in KINDS}
    for put, change in made.items():
        kind = KIND_OF[put]
        kept = {*kind.columns, *kind.keys.parts, *kind.keys.value, *kind.keys.revisions}
        assert kept == {name for name in dir(change) if not name.startswith("_")}, put.__name__


def test_owner_is_told_by_its_key() -> None:
    """A definition that goes with an owner is found by as many columns as the owner's key has."""
    for kind in KINDS:
        for owner, names in kind.owners.items():
            assert len(names) == len(owner.table.key)
            assert set(names) <= set(kind.columns)
            # An owner is written before what it owns.
            assert KINDS.index(owner) < KINDS.index(kind)
