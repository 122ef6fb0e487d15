"""The nemesis of bare cores, which also changes the members of their group.

Place in the data path: as `chaos.sim.seed.nemesis`, whose faults it inherits. A change of members
is scheduled like a fault, takes several steps, each requested from the apparent leader, and is
abandoned in the middle when its time is over: the state that it leaves must be sound.

Invariant: at most one voter is wiped at a time, from the loss of its disk until a configuration
without it is committed: with two the group would lose what it acknowledged, whatever it does. No
other voter is removed meanwhile, for those that are left might need the wiped one to agree. One
node has one procedure at a time: the end of another would kill what this one has started. A node
whose first store no configuration names (a group older than such names) never comes back with
another store: nobody could tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from chaos.sim.cores.invariants import Invariants
from chaos.sim.cores.node import SimNode
from chaos.sim.machine.disk import ADOPTION, BASE_WRITE, SimDisk, Survival
from chaos.sim.seed.nemesis import Nemesis
from raft.log.slot_file import SLOT_FILE_SIZE
from raft.membership import AddLearner, Member, PromoteLearner, RemoveMember
from raft.messages import NodeId

__all__ = ["MembershipNemesis"]

_TRIES_MAX = 40
_VOTERS_COUNT_MIN = 2
_REGRETS_RATE = 0.2
_STOP_OPERATIONS_MAX = 25
_ADOPTION_OPERATIONS_MAX = 3
_DROP_OPERATIONS_MAX = 3  # the other copy of the slot is written, and both are fsynced
_REOPENING_OPERATIONS = (2, 30)  # operations after the first removal
_SLOT_PATHS = ("commitlog.durable", "commitlog.base")
_POWER_TIMEOUTS_MAX = 6
_ROOM_LEFT_MAX = 2_000  # bytes on a disk that is about to be full


class MembershipNemesis(Nemesis[SimNode]):
    def __init__(self, *, invariants: Invariants, **others: Any) -> None:
        super().__init__(**others)
        self._invariants = invariants
        self._wiped: SimNode | None = None
        self._adopting: set[NodeId] = set()  # nodes that will die while adopting a snapshot
        self._dropping: set[NodeId] = set()  # nodes that will die while moving their log's start
        self._dropped: set[NodeId] = set()  # nodes that did: the next start loses power
        first = invariants.newest_membership
        self._in_hand: set[NodeId] = set()  # nodes with a procedure under way
        self._unnamed = {member.node_id for member in first.members if not member.store_id}

    def restart(self, node: SimNode, rng: Any) -> None:
        if not node.is_member or node.is_wiped:
            return
        if node.name in self._dropped and self.running and not node.alive:
            self._dropped.discard(node.name)
            self._lose_power_in_start(node)
        else:
            super().restart(node, rng)

    # --- the scheduled changes -----------------------------------------------------------------

    def _add_member(self) -> str | None:
        taken = self._in_hand | self._unnamed
        spares = [
            node
            for node in self._nodes
            if not node.is_member and not node.alive and node.name not in taken
        ]
        leader = self._leader()
        if leader is None:
            return None
        learners = [
            node
            for node in self._nodes
            if node.name in leader.membership.learner_ids and node.name not in taken
        ]
        if learners and (not spares or self._rng.random() < 0.3):
            node = self._rng.choice(learners)
            self._in_hand.add(node.name)
            self._promote(node)
            return f"{node.name}, a learner"
        if not spares:
            return None
        node = self._rng.choice(spares)
        self._in_hand.add(node.name)
        self._join(node, self._learns_us())
        return "a spare"

    def _remove_member(self) -> str | None:
        leader = self._leader()
        if leader is None:
            return None
        voters, learners = leader.membership.voter_ids, leader.membership.learner_ids
        if learners and self._rng.random() < 0.5:
            name = self._rng.choice(learners)
        elif len(voters) <= _VOTERS_COUNT_MIN:
            return None
        else:
            name = leader.name if self._rng.random() < 0.4 else self._rng.choice(voters)
        if self._wiped is not None or name in self._in_hand:
            return None
        self._in_hand.add(name)
        self._counts["leaders_removed"] += name == leader.name
        self._counts["learners_removed"] += name in learners
        stays = self._rng.random() < 0.5  # the removed node may disturb the others
        node = next(node for node in self._nodes if node.name == name)
        self._until(
            node,
            lambda: self._is_out(node),
            lambda: self._request(RemoveMember(node_id=node.name)),
            then=partial(self._on_removed, node, stays=stays),
        )
        return f"{name}, the leader: {name == leader.name}"

    def _replace_wiped(self) -> str | None:
        """Lose a voter's disk; the node comes back as a new member of the same name."""
        leader = self._leader()
        if leader is None or self._wiped is not None:
            return None
        names = self._invariants.newest_membership.voter_ids
        if len(names) <= _VOTERS_COUNT_MIN or self._invariants.contested_voters:
            return None
        taken = self._in_hand | self._unnamed
        victims = [
            node
            for node in self._nodes
            if node.alive and node.name in names and node.name not in taken
        ]
        if not victims:
            return None
        node = self._wiped = self._rng.choice(victims)
        self._in_hand.add(node.name)
        node.crash(power=True, survival=node.draw_survival())
        node.wipe()
        self._counts["disks_wiped"] += 1
        self._until(
            node,
            lambda: self._is_out(node),
            lambda: self._request(RemoveMember(node_id=node.name)),
            then=partial(self._on_wiped_removed, node, self._learns_us()),
        )
        return node.name

    def _learns_us(self) -> int | None:
        """Draw how long a new member stays a learner: no time, long, or (None) for good."""
        fate = self._rng.random()
        if fate < 0.3:
            return 0
        return None if fate > 0.75 else int(self._rng.random() ** 2 * self._learning_us_max)

    @property
    def _learning_us_max(self) -> int:
        return 5 * self._times.fault_duration_us_max

    def _company(self, leader: SimNode, *, most: bool) -> list[NodeId]:
        """Draw companions of the leader; learners and non-members do not count for a majority."""
        name, membership = leader.name, leader.membership
        voters = [voter for voter in membership.voter_ids if voter != name]
        count_max = max(0, (len(membership.voter_ids) - 1) // 2 - 1)
        count = count_max if most else self._rng.randint(0, count_max)
        others = [one.name for one in self._nodes if one.name not in {name, *voters}]
        side = self._rng.sample(voters, min(count, len(voters)))
        return side + [other for other in others if self._rng.random() < 0.7]

    # --- clean stops ---------------------------------------------------------------------------

    def _stop_cleanly(self) -> str | None:
        """Stop a node cleanly; it may be killed on the way."""
        node = self._leader() if self._rng.random() < 0.5 else self._alive()
        if node is None or node.paused:
            return None
        what = str(node.name)
        if self._rng.random() < 0.6:
            node.fuse_is_power = self._rng.random() < 0.7
            node.disk.fuse = 1 + int(self._rng.random() * _STOP_OPERATIONS_MAX)
            what += f", killed in {node.disk.fuse}"
        node.stop_cleanly()
        return what

    # --- snapshots that are received -----------------------------------------------------------

    def _crash_in_adoption(self) -> str | None:
        """Kill the next node that adopts a snapshot, restart it soon, cut its power later.

        The node dies as the file gets its name: what the second process does with it has to be
        durable.
        """
        nodes = [node for node in self._nodes if node.alive and not node.disk.fuse]
        for node in nodes:
            node.fuse_is_power = False
            node.disk.fuse = 1 + int(self._rng.random() ** 2 * _ADOPTION_OPERATIONS_MAX)
            node.disk.fuse_after = ADOPTION
            node.disk.has_begun_to_count = False
            self._adopting.add(node.name)
        return " ".join(f"{node.name} in {node.disk.fuse}" for node in nodes) or None

    # --- the start of the log ------------------------------------------------------------------

    def _crash_in_drop(self) -> str | None:
        """Kill the next node that moves the start of its log, before the new start is durable.

        It removes the entries before the start in its next run, and loses power in the middle of
        that.
        """
        nodes = [node for node in self._nodes if node.alive and not node.disk.fuse]
        for node in nodes:
            node.fuse_is_power = False
            node.disk.fuse = 1 + int(self._rng.random() * _DROP_OPERATIONS_MAX)
            node.disk.fuse_after = BASE_WRITE
            node.disk.has_begun_to_count = False
            self._dropping.add(node.name)
        return " ".join(f"{node.name} in {node.disk.fuse}" for node in nodes) or None

    def _lose_power_in_start(self, node: SimNode) -> None:
        rng = self._generator(f"reopening/{node.name}/{node.incarnation}")
        low, high = _REOPENING_OPERATIONS
        node.fuse_is_power = True
        node.disk.fuse = low + int(rng.random() ** 2 * (high - low))
        node.disk.fuse_after = "remove"
        node.start()
        if node.alive and node.disk.fuse_after is not None:
            node.disk.fuse, node.disk.fuse_after = 0, None  # nothing was there to be removed

    # --- disk corruption -----------------------------------------------------------------------

    def _rot_slots(self) -> str | None:
        """Kill a node between two actions, and damage one page of both copies of a slot file.

        The page is unreadable before the node's restart: the other page must hold true values.
        """
        node = self._alive()
        if node is None or node.paused:
            return None
        path, page = self._rng.choice(_SLOT_PATHS), self._rng.randrange(2)
        what = f"{node.name} {path} {page}"
        node.crash(power=False, survival=node.draw_survival())
        for copy in (path, f"{path}.copy"):
            if copy in node.disk.paths():
                content = bytearray(node.disk.content(copy))
                begin = page * SLOT_FILE_SIZE // 2
                content[begin : begin + SLOT_FILE_SIZE // 2] = bytes(SLOT_FILE_SIZE // 2)
                node.disk.spoil(copy, bytes(content))
        self.on_death(node)
        return what

    # --- deaths --------------------------------------------------------------------------------

    def on_death(self, node: SimNode) -> None:
        super().on_death(node)
        if node.name in self._dropping:
            self._dropping.discard(node.name)
            if node.disk.has_begun_to_count:
                self._counts["drops_broken_off"] += 1
                self._dropped.add(node.name)
        if node.name in self._adopting:
            self._adopting.discard(node.name)
            if node.disk.has_begun_to_count:
                self._counts["adoptions_broken_off"] += 1
                self._lose_power_later(node)
        elif node.disk.has_failed:
            self._lose_power_later(node)  # and with it what a failed fsync left in memory
        node.disk.has_failed = False

    def _lose_power_later(self, node: SimNode) -> None:
        """Cut the node's power once or twice within some election timeouts."""
        rng = self._generator(f"lost power/{node.name}/{node.incarnation}")
        for _ in range(rng.choice((1, 2))):
            timeouts = rng.random() * _POWER_TIMEOUTS_MAX
            delay_us = int(timeouts * self._times.election_timeout_ms_max * 1000)
            self._scheduler.after(delay_us, partial(self._lose_power, node))

    def _lose_power(self, node: SimNode) -> None:
        if self.running and node.alive:
            self._counts["power_lost_soon_after"] += 1
            node.crash(power=True, survival=Survival.NONE)
            self.on_death(node)

    # --- room, and slow state machines ---------------------------------------------------------

    def _fill_disk(self) -> str | None:
        """Fill the disk of the leader, of another node, or of all, until space is freed."""
        leader = self._leader()
        node = leader if leader is not None and self._rng.random() < 0.5 else self._alive()
        if node is None:
            return None
        full = list(self._nodes) if self._rng.random() < 0.2 else [node]
        disks = [one.disk for one in full]
        for disk in disks:
            disk.capacity_bytes = disk.used_bytes + int(self._rng.random() * _ROOM_LEFT_MAX)
        self._heal_later(partial(self._make_room, disks))
        return " ".join(one.name for one in full)

    @staticmethod
    def _make_room(disks: Sequence[SimDisk]) -> None:
        for disk in disks:
            disk.capacity_bytes = None

    def _slow_apply(self) -> str | None:
        node = self._rng.choice(self._nodes)
        timeout_us = self._times.election_timeout_ms_max * 1000
        node.set_apply_slow_us(int(timeout_us * self._rng.choice((0.1, 0.5, 1.5))))
        self._heal_later(partial(node.set_apply_slow_us, 0))
        return f"{node.name} {node.apply_slow_us}us"

    # --- steps of the procedures ---------------------------------------------------------------

    def _on_removed(self, node: SimNode, *, stays: bool) -> None:
        self._counts["members_removed"] += 1
        self._in_hand.discard(node.name)
        node.is_member = False
        if node.alive and not stays:
            node.crash(power=False, survival=node.draw_survival())

    def _on_wiped_removed(self, node: SimNode, learns_us: int | None) -> None:
        self._counts["wiped_members_replaced"] += 1
        self._wiped = None
        self._join(node, learns_us)

    def _join(self, node: SimNode, learns_us: int | None) -> None:
        node.join()
        member = Member(node_id=node.name, store_id=node.store_id)
        self._until(
            node,
            lambda: self._membership().member(node.name) is not None,
            lambda: self._request(AddLearner(member=member)),
            then=partial(self._let_learn, node, learns_us),
        )

    def _let_learn(self, node: SimNode, learns_us: int | None) -> None:
        if learns_us is None:
            self._counts["learners_left_as_such"] += 1
            self._in_hand.discard(node.name)
        else:
            self._scheduler.after(learns_us, partial(self._promote, node))

    def _promote(self, node: SimNode) -> None:
        self._until(
            node,
            lambda: node.name in self._membership().voter_ids,
            lambda: self._request(PromoteLearner(node_id=node.name)),
            then=partial(self._on_promoted, node),
        )

    def _on_promoted(self, node: SimNode) -> None:
        self._in_hand.discard(node.name)
        self._counts["learners_promoted"] += 1

    def _membership(self) -> Any:
        return self._invariants.newest_membership

    def _is_out(self, node: SimNode) -> bool:
        """Return whether the node's removal is committed, so that no leader can take it back."""
        return self._membership().member(node.name) is None

    def _request(self, change: Any) -> None:
        leader = self._leader()
        if leader is None:
            return
        wiped = self._wiped
        if wiped is not None and isinstance(change, RemoveMember) and change.node_id != wiped.name:
            return
        leader.requests.change(change)
        if isinstance(change, AddLearner) and self._rng.random() < _REGRETS_RATE:
            # Refused, as one change is under way; the request is made all the same.
            leader.requests.change(RemoveMember(node_id=change.member.node_id))

    def _until(
        self,
        node: SimNode,
        is_done: Callable[[], bool],
        request: Callable[[], None],
        *,
        then: Callable[[], None],
        tries: int = _TRIES_MAX,
    ) -> None:
        """Repeat `request` until `is_done`, then call `then`; give up when the faults end."""
        if not self.running:
            return
        if is_done():
            then()
            return
        request()
        if tries:
            delay_us = self._times.election_timeout_ms_max * 500
            again = partial(self._until, node, is_done, request, then=then, tries=tries - 1)
            self._scheduler.after(delay_us, again)
        elif node is not self._wiped:
            self._in_hand.discard(node.name)
