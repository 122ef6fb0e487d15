"""Changes of a group's members while it works: a learner, a voter, a removal, a new leader.

Place in the data path: `chaos.systems` carries a change out as an operator does; it is no failure
by itself, but terms, majorities and routes change in the middle of everything else. A node is added
in a spare place (`cluster.spares` of the scenario) or in that of a removed one.

Invariants: the heal brings the group back to the voters that it had; a change is taken only where
the leader itself names the members so. A removal leaves a majority of what was there.

Source: Ongaro's dissertation, chapter 4; Redpanda's and CockroachDB's nemeses of membership.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.links.base import LinkEffect, both_ways
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.systems.base import Part, SystemFailedError

__all__ = ["SPECS", "Addition", "CutChange", "MemberChange", "Removal", "Transfer"]

REMAINING_MIN: Final = 2
CUT_CHANGE_S: Final = 5.0


class MemberChange:
    """The base: the voters before, which the heal brings back."""

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._voters: list[str] = []
        self._nodes: list[str] = []

    @property
    def targets(self) -> list[str]:
        return list(self._nodes)

    async def setup(self) -> None:
        self._context.require_leader()
        self._voters = sorted(await self._context.group_members.members(self._context.group))

    async def heal(self) -> None:
        """Remove who was added, and add as many as are missing."""
        members, group = self._context.group_members, self._context.group
        for node in [*await members.members(group), *await members.learners(group)]:
            if node not in self._voters:
                await members.remove(node)
        missing = [node for node in self._voters if node not in await members.members(group)]
        for _ in missing:
            await members.add(group, voter=True)

    async def probe_healed(self) -> Observation:
        try:
            voters = sorted(await self._context.group_members.members(self._context.group))
            learners = await self._context.group_members.learners(self._context.group)
        except SystemFailedError as error:
            return Observation(seen=None, evidence=str(error))
        text = f"voters {', '.join(voters)}; learners {', '.join(learners) or 'none'}"
        return Observation(seen=voters == self._voters and not learners, evidence=text)

    async def _members(self) -> tuple[list[str], list[str], str]:
        """Return voters and learners, and both in words."""
        members, group = self._context.group_members, self._context.group
        voters, learners = list(await members.members(group)), list(await members.learners(group))
        text = f"voters {', '.join(voters)}; learners {', '.join(learners) or 'none'}"
        return voters, learners, text


class Addition(MemberChange):
    """Adds a node in a spare place, as a learner or as a voter."""

    def __init__(self, context: FaultContext, *, voter: bool) -> None:
        super().__init__(context)
        self._voter = voter
        self._added = ""

    async def setup(self) -> None:
        await super().setup()
        layout, group = self._context.world.layout, self._context.group
        spare = next((place for place in layout.spares if place.group == group), None)
        if spare is None:
            raise FaultNotPossibleError(f"{group} has no spare place: cluster.spares = 1 makes one")
        self._nodes = [spare.name]

    async def inject(self) -> None:
        self._added = await self._context.group_members.add(self._context.group, voter=self._voter)

    async def probe(self) -> Observation:
        if not self._added:
            return Observation(seen=False, evidence="nothing was added yet")
        voters, learners, text = await self._members()
        return Observation(seen=self._added in (voters if self._voter else learners), evidence=text)


class Removal(MemberChange):
    """Removes the leader or a follower; `replaced`: it is added again at once, with an empty
    store."""

    def __init__(self, context: FaultContext, target: str, *, replaced: bool = False) -> None:
        super().__init__(context)
        self._target = target
        self._replaced = replaced
        self._done: list[str] = []

    async def setup(self) -> None:
        await super().setup()
        if len(self._voters) <= REMAINING_MIN:
            raise FaultNotPossibleError(f"{self._context.group} has no member to spare")
        self._nodes = [self._context.pick(self._target)]

    async def inject(self) -> None:
        members, node = self._context.group_members, self._nodes[0]
        await members.remove(node)
        voters, _, text = await self._members()
        if node not in voters:
            self._done.append(f"removed: {text}")
        if self._replaced:
            await members.add(self._context.group, voter=True)

    async def probe(self) -> Observation:
        if not self._done:
            return Observation(seen=False, evidence="nobody was removed")
        voters, _, text = await self._members()
        back = self._nodes[0] in voters
        return Observation(seen=back is self._replaced, evidence=f"{self._done[0]}; now {text}")


class Transfer:
    """Lets the leader hand leadership to a follower."""

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._from = ""
        self._to = ""

    @property
    def targets(self) -> list[str]:
        return [self._to] if self._to else []

    async def setup(self) -> None:
        """Choose the live follower that is to lead. Raises FaultNotPossibleError without one, and
        where the group has no leader."""
        self._from = self._context.require_leader()
        self._to = self._context.pick("follower")

    async def inject(self) -> None:
        await self._context.group_members.transfer(self._context.group, self._to)

    async def probe(self) -> Observation:
        answer = await self._context.system.status(self._to)
        if answer is None:
            return Observation(seen=None, evidence=f"{self._to}: no answer")
        text = f"{self._from} led, {self._to} is {answer.role} of term {answer.term}"
        return Observation(seen=answer.role == "leader", evidence=text)

    async def heal(self) -> None:
        """Do nothing: who leads is as good as who led."""

    async def probe_healed(self) -> Observation:
        leader = self._context.leader(self._context.group)
        return Observation(seen=leader is not None, evidence=f"leader: {leader}")


class CutChange(MemberChange):
    """Asks for a change while the leader is cut off: it may be done by another leader, or not."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._leader = ""
        self._change: asyncio.Task[str] | None = None
        self._silent = False

    async def setup(self) -> None:
        await super().setup()
        layout, group = self._context.world.layout, self._context.group
        if not any(place.group == group for place in layout.spares):
            raise FaultNotPossibleError(f"{group} has no spare place: cluster.spares = 1 makes one")
        self._leader = self._context.require_leader()
        if self._voters == [self._leader]:
            raise FaultNotPossibleError(f"{group} has one node alone, and no link to cut")
        self._nodes = [self._leader]

    async def inject(self) -> None:
        context = self._context
        others = [name for name in context.members() if name != self._leader]
        await context.links.cut(both_ways([self._leader], others), context.tag)
        links = both_ways([self._leader], others)
        self._silent = all(probe.passes is False for probe in await context.links.probe(links))
        self._change = asyncio.create_task(
            context.group_members.add(context.group, voter=False), name=f"{context.tag} adds"
        )

    async def probe(self) -> Observation:
        if self._change is None or not self._silent:
            return Observation(seen=False, evidence="the leader was not seen cut off")
        ended = self._change.done()
        text = f"{self._leader} is cut off; the change {'has ended' if ended else 'goes on'}"
        return Observation(seen=True, evidence=text)

    async def heal(self) -> None:
        await self._context.links.heal(self._context.tag)
        if self._change is not None:
            # Rejected, done, or not known: the members themselves tell, below.
            await asyncio.wait([self._change])
            if not self._change.cancelled() and isinstance(
                self._change.exception(), SystemFailedError
            ):
                await asyncio.sleep(CUT_CHANGE_S)  # what is still under way ends by then
        await super().heal()


_PARTS: Final = frozenset({Part.PROCESSES, Part.MEMBERS})
_PROBE: Final = "the leader names the members so; healed when it names the former voters alone"

SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="add-learner",
        summary="a node is added as a learner, and removed at the heal",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Addition(context, voter=False),
        seen_elsewhere="Redpanda",
    ),
    FaultSpec(
        name="add-voter",
        summary="a node is added and promoted, and removed at the heal",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Addition(context, voter=True),
        seen_elsewhere="Jepsen, Redpanda, CockroachDB",
    ),
    FaultSpec(
        name="remove-follower",
        summary="a follower is removed, and added again with an empty store at the heal",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Removal(context, "follower"),
        seen_elsewhere="Jepsen, Redpanda, CockroachDB",
    ),
    FaultSpec(
        name="remove-leader",
        summary="the leader is removed, and added again with an empty store at the heal",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Removal(context, "leader"),
        seen_elsewhere="Jepsen",
    ),
    FaultSpec(
        name="replace-member",
        summary="a member is removed and added again at once, with an empty store",
        probe="the leader named the members without it, and names it again as a voter",
        parts=_PARTS,
        make=lambda context: Removal(context, str(context.params["target"]), replaced=True),
        seen_elsewhere="Redpanda, CockroachDB",
        parameters={"target": "follower"},
        choices={"target": ("leader", "follower", "any")},
    ),
    FaultSpec(
        name="transfer-leader",
        summary="the leader hands leadership to a follower",
        probe="the follower leads; healed when there is a leader",
        parts=_PARTS,
        make=Transfer,
        seen_elsewhere="etcd, Redpanda, CockroachDB",
    ),
    FaultSpec(
        name="change-while-cut",
        summary="a learner is added while the leader is cut off from its peers",
        probe="the links to the leader were silent when the change was asked for",
        parts=_PARTS,
        effects=frozenset({LinkEffect.CUT}),
        make=CutChange,
        seen_elsewhere="this project",
    ),
)
