"""Drills of offsets: commits of one group in the queues of a topic, and queries that follow them,
one by one and right behind each other over one connection.

Place in the data path: `drills` makes one with each new group, none of whose offsets anybody else
commits; requests go through `drill.Drill`. A consumer that stops, or whose queue goes to another
member of the same process, commits without waiting for an answer, and what it asks next has to see
that.

The model: the last commit of each queue counts, higher or lower, in whichever way it was made: by a
request of its own, oneway or answered, or by a pull that it rides on.

Source: RocketMQ ConsumerManageProcessor, PullMessageProcessor (FLAG_COMMIT_OFFSET),
ConsumerOffsetManager; promise G5.
"""

from __future__ import annotations

from typing import Final

from chaos.workload.parts.common.drill import Drill
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand

__all__ = ["OffsetDrill"]

BEHIND_MAX: Final = 3  # commits in a row that nobody waits for
_COMMITS: Final = 1  # bits of a pull's sysFlag
_HELD: Final = 2
_WITH_SUBSCRIPTION: Final = 4
HELD_MS: Final = 50


class OffsetDrill:
    """One group's offsets, and the ends of the queue."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._offsets: dict[int, int] = {}  # by queue

    async def run(self) -> None:
        """Query what there is, change it, query again. Raises Unsure."""
        own = self.drill.queue.queue_id
        await self._query(own)
        await self._commit(own)
        await self._query(own)
        await self._commit_behind()
        await self._query(self._draw_queue())
        for code, known in (
            (RequestCode.GET_MAX_OFFSET, self.drill.end),
            (RequestCode.GET_MIN_OFFSET, 0),
        ):
            await self.drill.request(
                code.name.lower(),
                code,
                self.drill.place(),
                expected=f"0 {known}",
                show=_show_offset,
            )

    async def _commit(self, queue_id: int) -> None:
        offset = self._draw_offset()
        await self.drill.request(
            f"commit {offset} of {self._group} in queue {queue_id}",
            RequestCode.UPDATE_CONSUMER_OFFSET,
            self.drill.place(consumerGroup=self._group, queueId=queue_id, commitOffset=offset),
            expected="0",
            changes=True,
        )
        self._offsets[queue_id] = offset

    async def _commit_behind(self) -> None:
        """Commit some times in a row, and query a queue's offset behind that."""
        rng = self.drill.rng
        ways = [rng.choice(("answered", "oneway", "pull")) for _ in range(BEHIND_MAX)]
        if rng.random() < 0.5:
            ways = ["answered"] * BEHIND_MAX  # then it is judged in any fault
        ways = ways[: rng.randint(1, BEHIND_MAX)]
        offsets = dict(self._offsets)
        ahead = []
        for way in ways:
            queue_id, offset = self._draw_queue(), self._draw_offset()
            offsets[queue_id] = offset
            ahead.append(self._command(way, queue_id, offset))
        queried = rng.choice([*offsets, self._draw_queue()])
        await self.drill.request_behind(
            f"offset of {self._group} in queue {queried}, behind commits: {' '.join(ways)}",
            ahead,
            self._question(queried, None),
            expected=f"0 {offsets.get(queried, 0)}",
            show=_show_offset,
            is_calm=any(way != "answered" for way in ways),
        )
        self._offsets = offsets

    def _command(self, way: str, queue_id: int, offset: int) -> RemotingCommand:
        if way == "pull":
            return self._pull(queue_id, offset)
        fields = self.drill.place(consumerGroup=self._group, queueId=queue_id, commitOffset=offset)
        return RemotingCommand(
            code=RequestCode.UPDATE_CONSUMER_OFFSET,
            flag=FLAG_ONEWAY if way == "oneway" else 0,
            ext_fields={name: str(value) for name, value in fields.items()},
        )

    def _pull(self, queue_id: int, offset: int) -> RemotingCommand:
        fields = self.drill.place(
            consumerGroup=self._group,
            queueId=queue_id,
            queueOffset=self.drill.rng.randint(0, self.drill.end),
            maxMsgNums=1,
            sysFlag=_COMMITS | _WITH_SUBSCRIPTION | self.drill.rng.choice((0, _HELD)),
            commitOffset=offset,
            suspendTimeoutMillis=HELD_MS,
            subVersion=0,
            subscription="*",
            expressionType="TAG",
        )
        return RemotingCommand(
            code=RequestCode.PULL_MESSAGE,
            ext_fields={name: str(value) for name, value in fields.items()},
        )

    async def _query(self, queue_id: int) -> None:
        # A topic that is young in the memory of its broker is begun at 0, unless told otherwise.
        zero = self.drill.rng.choice(("true", "false", None))
        none = "22" if zero == "false" else "0 0"
        offset = self._offsets.get(queue_id)
        question = self._question(queue_id, zero)
        await self.drill.request(
            f"offset of {self._group} in queue {queue_id}, zero if there is none: {zero}",
            RequestCode.QUERY_CONSUMER_OFFSET,
            question.ext_fields,
            expected=none if offset is None else f"0 {offset}",
            show=_show_offset,
        )

    def _question(self, queue_id: int, zero: str | None) -> RemotingCommand:
        fields = self.drill.place(consumerGroup=self._group, queueId=queue_id)
        if zero is not None:
            fields["setZeroIfNotFound"] = zero
        return RemotingCommand(
            code=RequestCode.QUERY_CONSUMER_OFFSET,
            ext_fields={name: str(value) for name, value in fields.items()},
        )

    def _draw_queue(self) -> int:
        """Draw a queue, most often that of the drill."""
        own = self.drill.queue.queue_id
        return self.drill.rng.choice((own, own, self.drill.rng.randrange(self.drill.queue_count)))

    def _draw_offset(self) -> int:
        """Draw an offset, now and then one that is, or was, committed: to go back to it."""
        drawn = self.drill.rng.randint(0, self.drill.end)
        return self.drill.rng.choice((drawn, drawn, *self._offsets.values()))


def _show_offset(answer: RemotingCommand) -> str:
    return f"0 {answer.ext_fields.get('offset')}" if answer.code == 0 else str(answer.code)
