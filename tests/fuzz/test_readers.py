"""Each reader of bytes from outside passes its corpus and a fixed number of damaged inputs.

Longer runs: `python -m tests.fuzz READER --minutes N`.
"""

import pytest

from tests.fuzz.campaign import Campaign, corpus_of
from tests.fuzz.readers import READERS

SEED = 1
# Inputs beside the corpus. Readers that start a whole node take milliseconds for each.
FEW, MANY = 20, 200
SLOW = {
    "connection", "admin", "staged-block", "definitions", "operations", "events", "directory",
    "record-block", "rabbitmq-directory", "payloads",
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_reader_passes_damaged_inputs(name: str) -> None:
    corpus = corpus_of(name)
    campaign = Campaign(READERS[name], corpus, SEED)
    try:
        for number in range(len(corpus) + (FEW if name in SLOW else MANY)):
            campaign.run(number)
    finally:
        campaign.close()
    outcome = campaign.outcome
    assert [(each.number, each.reason, each.kind) for each in outcome.findings] == [], (
        "repeat it by `python -m tests.fuzz READER --seed 1 --input NUMBER`"
    )
    # Damage so heavy that nothing is read tests little.
    assert outcome.accepted > 0
