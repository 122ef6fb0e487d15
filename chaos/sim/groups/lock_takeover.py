"""Death or pause of an owner of queues in a calm group: another member must get its queues.

Place in the data path: `cluster` runs this once the group is calm, in some of the seeds with
orderly consumers. `lock_model` judges grants and consumption as always; a lease that never ends
shows here alone, since no seed with faults has a leader for long enough.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from chaos.sim.groups.machine import Machine, Site
from chaos.sim.groups.models.lock_model import LockModel
from chaos.sim.machine.violation import Violation

__all__ = ["LockTakeover"]

_LEASE_US = 60_000_000  # of a member that stops renewing
_LEASE_OF_THE_GONE_US = 35_000_000  # of one whose connection is closed
_SLOWEST_CLOCK = 1.1
_FIRST_GRANT_US = 10_000_000
_AFTER_RESUMED_US = 3_000_000
_MEMBERS_MIN = 2


class LockTakeover:
    """Kills or pauses one owner until its queues have another owner."""

    def __init__(
        self, clients: Sequence[Machine], locks: LockModel, group: str, site: Site
    ) -> None:
        self._clients = {str(machine.name): machine for machine in clients}
        self._locks = locks
        self._group = group
        self._site = site

    def run(
        self,
        run_until: Callable[[int, Callable[[], bool] | None], bool],
        rng: random.Random,
        *,
        grace_us: int,
    ) -> None:
        """Run one takeover.

        `run_until` advances time until a virtual time or until a condition holds; `grace_us` is the
        time that members may need beyond the lease for a request and its answer.

        Raises:
            Violation: no member gets the owner's queues.
        """
        scheduler, counts = self._site.scheduler, self._site.coverage.counts
        if not run_until(scheduler.now_us + _FIRST_GRANT_US, lambda: bool(self._owners())):
            return  # all are between an unlock and the next lock
        host, client_id = rng.choice(self._owners())
        machine = self._clients[host]
        before = counts["queues_taken_over"]
        is_paused = rng.random() < 0.5
        self._site.trace.add("sim", f"{host} is {'paused' if is_paused else 'dead'} from here on")
        if is_paused:
            machine.pause()
        else:
            machine.die(power=False)
        lease_us = int((_LEASE_US if is_paused else _LEASE_OF_THE_GONE_US) * _SLOWEST_CLOCK)
        deadline_us = scheduler.now_us + lease_us + grace_us
        if not run_until(deadline_us, lambda: counts["queues_taken_over"] > before):
            # The pause may fall between an owner's unlock and the broker: then its queues are free.
            if not self._locks.owns(self._group, client_id):
                return
            raise Violation("locks", f"nobody is given what {client_id} had, who is gone")
        if is_paused:
            machine.resume()  # the requests that it still handles are about queues of another owner
            run_until(scheduler.now_us + _AFTER_RESUMED_US, None)

    def _owners(self) -> list[tuple[str, str]]:
        """Return (machine, client) of the owners of queues, if another member could take over."""
        alone = self._locks.live_members(self._group) < _MEMBERS_MIN
        return [] if alone else self._locks.live_owners(self._group)
