"""A source of confirms for a mirrored queue that confirms or refuses when the test says so."""

from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.store.journal.confirm_run import ConfirmParty


class HeldParties(ConfirmSource):
    """A source whose parties the test finishes; `refusing`: too few copies count."""

    def __init__(self) -> None:
        super().__init__()
        self.refusing = False
        self.parties: list[ConfirmParty] = []

    def party(self) -> ConfirmParty:
        self.parties.append(ConfirmParty())
        return self.parties[-1]

    def refuses(self) -> bool:
        return self.refusing

    def has_room(self) -> bool:
        return True

    def is_drained(self) -> bool:
        return True

    def decide(self, ok: bool) -> None:
        """Finish all parties."""
        parties, self.parties = self.parties, []
        for party in parties:
            party.finish(ok)
