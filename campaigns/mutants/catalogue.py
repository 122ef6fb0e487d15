"""Every planted bug, by area.

Place in the data path: `campaign` runs them all, `worker` one; `test_mutants` sees to it that each
still fits the source. The product has no switch for any of them.
"""

from __future__ import annotations

from campaigns.mutants.blind_spot_mutants import BLIND_SPOT_MUTANTS
from campaigns.mutants.broker_mutants import BROKER_MUTANTS
from campaigns.mutants.clock_mutants import CLOCK_MUTANTS
from campaigns.mutants.consumer_mutants import CONSUMER_MUTANTS
from campaigns.mutants.election_mutants import ELECTION_MUTANTS
from campaigns.mutants.membership_mutants import MEMBERSHIP_MUTANTS
from campaigns.mutants.mutant import Mutant
from campaigns.mutants.repair_mutants import REPAIR_MUTANTS
from campaigns.mutants.replication_mutants import REPLICATION_MUTANTS
from campaigns.mutants.retention_mutants import RETENTION_MUTANTS
from campaigns.mutants.shell_mutants import SHELL_MUTANTS
from campaigns.mutants.snapshot_mutants import SNAPSHOT_MUTANTS
from campaigns.mutants.storage_mutants import STORAGE_MUTANTS
from campaigns.mutants.transaction_mutants import TRANSACTION_MUTANTS
from campaigns.mutants.waiting_mutants import WAITING_MUTANTS

__all__ = ["AREAS", "MUTANTS"]

AREAS: dict[str, tuple[Mutant, ...]] = {
    "election": ELECTION_MUTANTS,
    "replication": REPLICATION_MUTANTS,
    "storage": STORAGE_MUTANTS,
    "membership": MEMBERSHIP_MUTANTS,
    "snapshots": SNAPSHOT_MUTANTS,
    "repair": REPAIR_MUTANTS,
    "retention": RETENTION_MUTANTS,
    "shell": SHELL_MUTANTS,
    "blind spots": BLIND_SPOT_MUTANTS,
    "broker": BROKER_MUTANTS,
    "clocks": CLOCK_MUTANTS,
    "transactions": TRANSACTION_MUTANTS,
    "timers, POP, deletions": WAITING_MUTANTS,
    "resets, locks, POP in order, administration": CONSUMER_MUTANTS,
}

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for mutants in AREAS.values() for mutant in mutants
}

assert len(MUTANTS) == sum(len(mutants) for mutants in AREAS.values()), "two of one name"
