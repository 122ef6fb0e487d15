"""Every bug that is planted into real processes, by area.

Place in the data path: `campaigns.mutants.planted_experiments` runs them, `planting` arms processes
with them; a test sees to it that each still fits the source.
"""

from __future__ import annotations

from typing import Final

from campaigns.mutants.live.clients import LIVE_CLIENT_MUTANTS
from campaigns.mutants.live.live_mutant import LiveMutant
from campaigns.mutants.live.reading import READING_MUTANTS
from campaigns.mutants.live.replicas import REPLICA_MUTANTS
from campaigns.mutants.live.sending import SENDING_MUTANTS
from campaigns.mutants.live.transactions import LIVE_TRANSACTION_MUTANTS

__all__ = ["AT_ONCE", "LIVE_AREAS", "LIVE_MUTANTS"]

LIVE_AREAS: Final[dict[str, tuple[LiveMutant, ...]]] = {
    "sends": SENDING_MUTANTS,
    "reads and offsets": READING_MUTANTS,
    "transactions": LIVE_TRANSACTION_MUTANTS,
    "clients and name servers": LIVE_CLIENT_MUTANTS,
    "replicas": REPLICA_MUTANTS,
}

LIVE_MUTANTS: Final[dict[str, LiveMutant]] = {
    mutant.name: mutant for mutants in LIVE_AREAS.values() for mutant in mutants
}

assert len(LIVE_MUTANTS) == sum(map(len, LIVE_AREAS.values())), "two of one name"

# Compatible ones, for one run that has them all.
AT_ONCE: Final = (
    "send acknowledged when proposed",
    "refused, and stored all the same",
    "another place told than stored at",
    "body cut in half",
    "bodies of a batch in the wrong order",
    "dedupe window ignored",
    "half that nobody sent",
    "not fsynced in time, told as stored",
    "message left out of a member's pull",
    "maximum offset of a while ago",
    "older committed offset returned",
    "query shows another key's message",
    "rolled back, and delivered",
    "committed with another body",
    "op record of another transaction",
    "check asked too early",
    "check asked twice",
    "half discarded too early",
    "every member takes all queues",
    "consumer offset not applied on a replica",
    "unit with another tag",
    "another chain applied",
)

assert {*AT_ONCE} <= LIVE_MUTANTS.keys()
