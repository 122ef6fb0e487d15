"""Runs a simulated group until no sync is under way that began under a fault.

Place in the data path: `chaos.sim.groups.cluster` calls it before it leaves the group alone. A
leader whose fsync takes longer than an election hands leadership over, and does so also where the
fault that made the fsync slow has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.machine.violation import Violation

__all__ = ["await_late_syncs"]


def await_late_syncs(
    brokers: Sequence[BrokerMachine],
    run: Callable[[Callable[[], bool]], bool],
    pass_timeout: Callable[[], object],
    *,
    calm_since_us: int,
) -> None:
    """Run until each sync that began before `calm_since_us` has ended, with its consequences.

    `run` runs until a condition holds, and returns whether it did in time; `pass_timeout` advances
    time by an election timeout. Raises Violation where a sync does not end, or there is no leader
    then.
    """

    def are_late() -> bool:
        return any(machine.syncs_since(calm_since_us) for machine in brokers)

    def is_led() -> bool:
        statuses = [machine.status for machine in brokers]
        return any(status is not None and status.ready for status in statuses)

    if not are_late():
        return
    if not run(lambda: not are_late()):
        raise Violation("liveness", "a sync that began under a fault does not end")
    # A leadership transfer that was started meanwhile is complete or given up by then.
    pass_timeout()
    if not run(is_led):
        raise Violation("liveness", "nobody leads after a sync that began under a fault")
