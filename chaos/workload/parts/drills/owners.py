"""Drills of members and locks: who is in a group, and whose a queue is.

Place in the data path: `drills` runs them in turn with the others; requests go through
`drill.Drill`, in the name of clients that exist only there: a broker knows a client by the id in
its heartbeats.

A member is known to a node that answered its heartbeat, over one connection, for as long as the
broker's client silence is not over; so it is queried just before the next heartbeat is due, for
longer than one silence. Locks are asked for only as long as no lease can be over.

Source: RocketMQ ConsumerManager, ClientManageProcessor, RebalanceLockManager; decision 18.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import Drill, EndedError, Unsure
from client.connection.instance import ClientInstance
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["LEASE_MS", "LockDrill", "MemberDrill", "Notices", "show_locked"]

BEATS_PER_SILENCE: Final = 5
PAUSE_S_MIN: Final = 0.2
SILENCES: Final = 1.5  # for how many of them members are queried
MEMBERS: Final = (1, 3)
SILENCE_MS: Final = 120_000  # a broker's, where a scenario does not tell another one
CALM_FROM_S: Final = 2.0  # behind a fault, from which answers are judged
SILENCE_SURE: Final = 0.5  # of it, after which an answer may come too late
EXPIRED_S: Final = 2.5  # after which a broker has noticed, and an answer is from behind that
UNUSUAL_SHARE: Final = 0.2  # of the groups broadcast; as many are not to be notified
NOTIFIED_S: Final = 1.0  # within which clients are notified of a change
NOT_NOTIFIED_S: Final = 0.2
LEASE_MS: Final = 60_000  # a broker's, where a scenario does not tell another one
LEASE_SURE: Final = 0.5  # of a lease; a client that is not connected loses its queues at 7/12 of it
REQUEST_S: Final = 2.5  # which a request may last
STEPS: Final = 8
_NOBODY: Final = 1  # the code of an answer that a group has no member


class Notices:
    """The notices of changed members that brokers have sent to the clients of a drill, by group.

    Caller's duty: nobody else listens for them at these clients.
    """

    def __init__(self, instances: Sequence[ClientInstance]) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        for number, instance in enumerate(instances):
            instance.listen(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, partial(self._note, number))

    def _note(self, number: int, _: object, command: RemotingCommand) -> None:
        self._counts[command.ext_fields.get("consumerGroup", ""), number] += 1

    def count(self, group: str, number: int) -> int:
        """Return how many came for `group` to the client with this number."""
        return self._counts[group, number]


class MemberDrill:
    """Members that send their heartbeats, leave, lose their connection or want other topics;
    which of the two clients of the drill is notified of that.

    Of some groups nobody is notified: those that are configured so, and those that broadcast.
    """

    def __init__(self, drill: Drill, group: str, notices: Notices, *, silence_ms: int) -> None:
        self.drill = drill
        self._group = group
        self._notices = notices
        self._pause_s = max(PAUSE_S_MIN, silence_ms / 1000 / BEATS_PER_SILENCE)
        self._node: str | None = None  # that has all heartbeats
        self._at: dict[str, int] = {}  # members by client, of the two
        self._wants_more = False
        self._silence_s = (silence_ms or SILENCE_MS) / 1000
        self._silent_from_s = 0.0
        draw = drill.rng.random()
        self._broadcasts = draw < UNUSUAL_SHARE
        self._is_notified = draw > 2 * UNUSUAL_SHARE

    async def run(self, other: ClientInstance) -> None:
        """Be members for a while; `other`: a third client, whose connection breaks. Raises Unsure,
        EndedError."""
        if not self._is_notified and not self._broadcasts:
            await self._configure()
        names = [f"{self._group}@{n}" for n in range(self.drill.rng.randint(*MEMBERS))]
        for name in names:
            await self._join(name)
        await self._move(names)
        await self._resubscribe(names[0])
        await self._break(names, other)
        self._silent_from_s = asyncio.get_running_loop().time()
        await self._join(self._silent)
        beats = round(BEATS_PER_SILENCE * SILENCES)
        for _ in range(beats):
            for name in names:
                await self._beat(name, at=self._at[name])
            await self._list_with_silent(names)
            if await sleep_until_set(self.drill.ends, self._pause_s):
                raise EndedError
            await self._list_with_silent(names)
        if self._is_silent_there() is None:
            raise Unsure
        if not self._is_silent_there():
            del self._at[self._silent]
        await self._leave(names.pop())
        await self._list_with_silent(names)
        raise Unsure  # a broker may know the others for a while

    @property
    def _silent(self) -> str:
        return f"{self._group}@silent"

    def _is_silent_there(self) -> bool | None:
        """Return whether the member that sent one heartbeat is known; None: nobody can know."""
        silent_s = asyncio.get_running_loop().time() - self._silent_from_s
        # A connection that broke in a fault ends its membership, too; what is asked so soon behind
        # one is not judged.
        if silent_s < min(SILENCE_SURE * self._silence_s, CALM_FROM_S):
            return True
        return None if silent_s < self._silence_s + EXPIRED_S else False

    async def _list_with_silent(self, names: list[str]) -> None:
        is_there = self._is_silent_there()
        if is_there is not None:
            await self._list([*names, self._silent] if is_there else names)

    async def _configure(self) -> None:
        """Have the group's members not notified."""
        config = {"groupName": self._group, "notifyConsumerIdsChangedEnable": False}
        await self.drill.request(
            f"{self._group} is not to be notified of its members",
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            body=json.dumps(config).encode(),
            expected="0",
            changes=True,
        )
        self._node = self.drill.node  # others hear of it later

    async def _join(self, name: str) -> None:
        """Send a first heartbeat through one of the clients."""
        before = self._counts()
        at = self.drill.rng.randrange(2)
        await self._beat(name, at=at)
        self._at[name] = at
        await self._hold_notified(f"{name} comes", before)

    async def _move(self, names: list[str]) -> None:
        """A member that comes back over another connection is not gone with the one it left."""
        mover = f"{self._group}@mover"
        for at in (0, 1):
            before = self._counts()
            await self._beat(mover, at=at)
            self._at[mover] = at
            await self._hold_notified(f"{mover} comes through client {at}", before)
            await self._list([*names, mover])
        await self._leave(mover, at=0)  # through the connection that is not its own any more
        await self._list([*names, mover])
        await self._leave(mover)
        await self._list(names)

    async def _resubscribe(self, name: str) -> None:
        """Want another topic as well, and then no more, of which the others are to hear, too."""
        for self._wants_more in (True, False):
            before = self._counts()
            await self._beat(name, at=self._at[name])
            what = "wants another topic" if self._wants_more else "wants one topic less"
            await self._hold_notified(f"{name} {what}", before)

    async def _break(self, names: list[str], other: ClientInstance) -> None:
        """Have a member whose connection breaks, which is the end of its membership."""
        broken = f"{self._group}@broken"
        before = self._counts()
        await self._beat(broken, at=None, via=other)
        await self._hold_notified(f"{broken} comes", before)
        before = self._counts()
        await other.abort()
        await self._hold_notified(f"the connection of {broken} breaks", before)
        await self._list(names, is_awaited=True)

    async def _leave(self, name: str, *, at: int | None = None) -> None:
        """Leave through a client: that of the member, unless `at` says another one."""
        before, own = self._counts(), self._at[name]
        await self.drill.request(
            f"{name} leaves",
            RequestCode.UNREGISTER_CLIENT,
            {"clientID": name, "consumerGroup": self._group},
            expected="0",
            changes=True,
            from_other=bool(own if at is None else at),
        )
        if at in {None, own}:
            del self._at[name]
            await self._hold_notified(f"{name} leaves", before)

    async def _beat(self, name: str, *, at: int | None, via: ClientInstance | None = None) -> None:
        topics = [self.drill.queue.topic, f"{self.drill.queue.topic}-more"]
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "BROADCASTING" if self._broadcasts else "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [
                {"topic": topic, "subString": "*"}
                for topic in topics[: 2 if self._wants_more else 1]
            ],
        }
        body = {"clientID": name, "producerDataSet": [], "consumerDataSet": [consumer]}
        await self.drill.request(
            f"heartbeat of {name}",
            RequestCode.HEART_BEAT,
            {},
            body=json.dumps(body).encode(),
            expected="0",
            changes=True,
            from_other=at == 1,
            via=via,
        )
        if self._node not in {None, self.drill.node}:
            raise Unsure  # this node knows of this client only
        self._node = self.drill.node

    def _counts(self) -> list[int]:
        return [self._notices.count(self._group, number) for number in (0, 1)]

    async def _hold_notified(self, what: str, before: list[int]) -> None:
        """Hold that each client that has members is notified at once, and no other."""
        members = (
            sorted(set(self._at.values())) if self._is_notified and not self._broadcasts else []
        )

        def notified() -> str:
            now = self._counts()
            return str([number for number in (0, 1) if now[number] > before[number]])

        await self.drill.wait_for(
            f"clients that are notified in {self._group}: {what}",
            notified,
            expected=str(members),
            within_s=NOTIFIED_S if members else NOT_NOTIFIED_S,
            stays=not members,
        )

    async def _list(self, names: list[str], *, is_awaited: bool = False) -> None:
        """Query the members; `is_awaited`: what has just ended at its own end may be known for a
        moment."""
        if is_awaited:
            await asyncio.sleep(NOTIFIED_S)
        await self.drill.request(
            f"members of {self._group}",
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": self._group},
            expected=" ".join(sorted(names)) or "nobody",
            show=_show_members,
            is_calm=True,
            may_be=frozenset({_NOBODY}),
            only_by=self._node,
        )


class LockDrill:
    """Two clients that want the same queues of a group. `lease_ms`: how long a broker keeps a lock
    that is not renewed."""

    def __init__(self, drill: Drill, group: str, *, lease_ms: int) -> None:
        self.drill = drill
        self._group = group
        self._sure_s = LEASE_SURE * lease_ms / 1000 - REQUEST_S
        self._owners: dict[int, str] = {}
        self._locked_s: dict[int, float] = {}

    async def run(self) -> None:
        """Lock and unlock for a while; what is held then is held in the next round, too. Raises
        Unsure, EndedError."""
        rng, queue_count = self.drill.rng, self.drill.queue_count
        clients = [f"{self._group}@a", f"{self._group}@b"]
        for _ in range(STEPS):
            client = rng.choice(clients)
            queues = sorted(rng.sample(range(queue_count), rng.randint(1, queue_count)))
            if not self._owners and rng.random() < 0.4:
                await self._lock_at_once(clients, queues)
                continue
            if rng.random() < 0.6:
                await self._lock(client, queues)
            else:
                await self._unlock(client, queues)

    async def _lock(self, client: str, queues: list[int]) -> None:
        begun_s = asyncio.get_running_loop().time()
        self._check_leases()
        got = [queue for queue in queues if self._owners.get(queue, client) == client]
        await self.drill.request(
            f"lock {queues} for {client}",
            RequestCode.LOCK_BATCH_MQ,
            {},
            body=self._body(client, queues),
            expected=f"0 {got}",
            show=show_locked,
            changes=True,
        )
        for queue in got:
            self._owners[queue] = client
            self._locked_s[queue] = begun_s
        self._check_leases()

    def _check_leases(self) -> None:
        """Raises Unsure where a lease may be over before the next answer."""
        sure_from_s = asyncio.get_running_loop().time() - self._sure_s
        if any(self._locked_s[queue] < sure_from_s for queue in self._owners):
            raise Unsure

    async def _lock_at_once(self, clients: list[str], queues: list[int]) -> None:
        """Have two clients lock the same queues at one time, of which one gets all of them."""
        begun_s = asyncio.get_running_loop().time()
        answers = await self.drill.request_twice(
            f"lock {queues} for each of {clients}",
            RequestCode.LOCK_BATCH_MQ,
            [({}, self._body(client, queues)) for client in clients],
            expected=[f"0 {queues}", "0 []"],
            show=show_locked,
        )
        for client, answer in zip(clients, answers, strict=True):
            if show_locked(answer) != "0 []":
                self._owners |= dict.fromkeys(queues, client)
                self._locked_s |= dict.fromkeys(queues, begun_s)

    async def _unlock(self, client: str, queues: list[int]) -> None:
        await self.drill.request(
            f"unlock {queues} of {client}",
            RequestCode.UNLOCK_BATCH_MQ,
            {},
            body=self._body(client, queues),
            expected="0",
            changes=True,
        )
        for queue in queues:
            if self._owners.get(queue) == client:
                del self._owners[queue]

    def _body(self, client: str, queues: list[int]) -> bytes:
        place = self.drill.queue
        named = [
            {"topic": place.topic, "brokerName": place.broker_name, "queueId": queue}
            for queue in queues
        ]
        body = {"consumerGroup": self._group, "clientId": client, "mqSet": named}
        return json.dumps(body).encode()


def _show_members(answer: RemotingCommand) -> str:
    if answer.code == _NOBODY:
        return "nobody"
    names = json.loads(answer.body or b"{}").get("consumerIdList") or []
    return " ".join(sorted(names))


def show_locked(answer: RemotingCommand) -> str:
    if answer.code != 0:
        return str(answer.code)
    rows = json.loads(answer.body or b"{}").get("lockOKMQSet") or []
    return f"0 {sorted(row['queueId'] for row in rows)}"
