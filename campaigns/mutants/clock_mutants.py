"""Planted bugs in what goes by which clock."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["CLOCK_MUTANTS"]

CLOCK_MUTANTS = (
    Mutant(
        name="group time is the leader's wall clock",
        kind="group",
        breaks="one jump forth and back leaves stamps ahead for as long as it jumped",
        published="this broker, until the simulator's clocks jumped by hours",
        expected=("time", "liveness"),
        patches=(
            SourcePatch(
                module="broker.request.clock_exchange",
                within="ClockExchange.now_ms",
                before="return self._clock.now_ms(self._monotonic_ms(), self._state.store_timestamp_ms)",
                after="return self._wall_ms()",
            ),
            SourcePatch(
                module="broker.request.clock_exchange",
                within="ClockExchange.stamp_ms",
                before=(
                    "return self._clock.stamp_ms(self._monotonic_ms(), "
                    "self._state.store_timestamp_ms)"
                ),
                after="return self._wall_ms()",
            ),
        ),
    ),
    Mutant(
        name="group time falls where a new leader is behind",
        kind="group",
        breaks="stamps go back in the log",
        expected=("G5", "stopped", "time"),
        patches=(
            SourcePatch(
                module="broker.state.group_clock",
                within="GroupClock.now_ms",
                before="if now_ms < last_stamp_ms:",
                after="if False:",
            ),
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._encode",
                before="""
                store_ms = self._last_store_ms = max(
                    self._clock_ms(), self._last_store_ms, self._state.store_timestamp_ms
                )
                """,
                after="store_ms = self._last_store_ms = self._clock_ms()",
            ),
        ),
    ),
    Mutant(
        name="group time stands still behind a stamp",
        kind="group",
        breaks="what a new leader's clock is behind, nothing becomes due",
        expected=("time", "liveness"),
        patches=(
            SourcePatch(
                module="broker.state.group_clock",
                within="GroupClock.now_ms",
                before="self._ahead_ms = last_stamp_ms - monotonic_ms",
                after="pass",
            ),
            SourcePatch(
                module="broker.state.group_clock",
                within="GroupClock.heard",
                before="if reading.group_ms is not None and (is_leader or not self.is_sure):",
                after="if False:",
            ),
        ),
    ),
    Mutant(
        name="one clock decides how far group time is off",
        kind="group",
        breaks="a leader corrects the group's time by its own wall clock, wrong or not",
        expected=("time",),
        patches=(
            SourcePatch(
                module="broker.state.group_clock",
                within="GroupClock._bounds",
                before="bounds = least[len(clocks) - 1 - wrong_max], most[wrong_max]",
                after="bounds = own_ms, own_ms",
            ),
        ),
    ),
    Mutant(
        name="group time is not taken over from the leader",
        kind="group",
        breaks="a new leader begins with what the wall clocks say, however sure the old one was",
        expected=("time",),
        patches=(
            SourcePatch(
                module="broker.state.group_clock",
                within="GroupClock.heard",
                before="if reading.group_ms is not None and (is_leader or not self.is_sure):",
                after="if False:",
            ),
        ),
        survives="while most clocks are right they say nearly the same; drift alone tells the two",
    ),
    Mutant(
        name="deadlines of the process by the wall clock",
        kind="group",
        breaks="a jump of minutes drops every client at once, and holds pulls for as long",
        published="this broker, until the simulator's clocks jumped by hours",
        expected=("time",),
        patches=(
            SourcePatch(
                module="broker.process.server",
                within="Broker._make_replica",
                before="""
                clock_ms=clocks.now_ms,
                monotonic_ms=_monotonic_ms,
                """,
                after="""
                clock_ms=clocks.now_ms,
                monotonic_ms=_wall_ms,
                """,
            ),
        ),
    ),
)
