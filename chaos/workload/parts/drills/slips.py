"""Drills of an administrator's slips: requests that are illegal in themselves, whatever there is of
topics, groups, offsets, users, permissions, members and filters, and queries that lack a field or
garble one. Each is refused with a code of its own, and leaves nothing behind.

Place in the data path: `drills` has it run beside the others, at the leader; most of what it sends
is a row of `slip_tables`. What is refused there names a topic, a group and a user that no
legal request ever makes; they are queried, and have to be absent.

The model: the tables, and here what each request is answered with.

Source: RocketMQ AdminBrokerProcessor, ChangeInvisibleTimeProcessor, QueryAssignmentProcessor,
RemotingCommand (decodeCommandCustomHeader: a required field); docs/DIVERGENCE.md.
"""

from __future__ import annotations

from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import Drill, EndedError, Unsure
from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from chaos.workload.parts.drills.handles import Handle
from chaos.workload.parts.drills.slip_tables import (
    BAD_EXPRESSION,
    BAD_PARAMETER,
    NO_MESSAGE,
    NO_PERMISSION,
    NO_TOPIC,
    NOBODY,
    SYSTEM_ERROR,
    Slip,
    json_body,
    of_access,
    of_groups,
    of_topics,
)
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SlipDrill", "of_nobody"]

INCOMPLETE: Final = 20  # queries that lack a field, of a round
PAUSE_S: Final = 0.02
_NOT_SERVED: Final = "3"
_NO_GROUP: Final = "26"
_NUMBERS: Final = ("", "x", "1.5", "0x10", "9" * 30, "--1")
_BEYOND: Final = 1 << 40  # no queue is that long
_POSITION_DIGITS: Final = 16  # of a message's id


class SlipDrill:
    """The slips of one administrator. `group`: one without members."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group

    async def run(self) -> None:
        """Send all of them, in an order of its own, and query what must not be there. Raises
        Unsure, EndedError."""
        await self.begin()
        rng = self.drill.rng
        table = [*self.table(), *(self.incomplete() for _ in range(INCOMPLETE))]
        for slip in rng.sample(table, len(table)):
            await self.send(slip)
            if await sleep_until_set(self.drill.ends, PAUSE_S):
                raise EndedError
        for slip in of_nobody():
            await self.send(slip)
        raise Unsure  # the next administrator makes them in another order

    async def begin(self) -> None:
        """Commit an offset, so that brokers know the group. Raises Unsure, EndedError."""
        await self.drill.request(
            f"commit of {self._group}",
            RequestCode.UPDATE_CONSUMER_OFFSET,
            self.drill.place(consumerGroup=self._group, commitOffset=0),
            expected="0",
            changes=True,
        )

    def table(self) -> list[Slip]:
        """Return those that are always the same."""
        tables = of_access(), of_topics(), of_groups(self._group)
        own = self._of_resets(), self._of_modes(), self._of_messages()
        return [slip for table in (*tables, *own) for slip in table]

    async def send(self, slip: Slip) -> None:
        """Send one. Raises Unsure where it is answered otherwise, EndedError."""
        guarded = slip.is_garbled and self.drill.is_guarded
        expected = NO_PERMISSION if guarded else slip.expected
        code, _, remark = expected.partition(" ")
        await self.drill.request(
            f"slip: {slip.what}",
            slip.code,
            slip.fields,
            body=slip.body,
            expected=expected,
            show=_with_remark if remark else None,
            is_calm=True,
            may_be=frozenset({int(code)}),
            from_other=self.drill.rng.random() < 0.5,
        )

    def _of_resets(self) -> list[Slip]:
        queue, code = self.drill.queue, RequestCode
        reset: dict[str, object] = {"group": self._group, "timestamp": 0, "isForce": "true"}
        return [
            Slip(
                what="reset of offsets in a topic that is not there",
                code=code.INVOKE_BROKER_TO_RESET_OFFSET,
                fields=reset | {"topic": NOBODY},
                expected=NO_TOPIC,
            ),
            Slip(
                what="reset of a group that is not there",
                code=code.INVOKE_BROKER_TO_RESET_OFFSET,
                fields=reset | {"topic": queue.topic, "group": NOBODY},
                expected=_NO_GROUP,
            ),
            Slip(
                what="reset of a group with an illegal name",
                code=code.INVOKE_BROKER_TO_RESET_OFFSET,
                fields=reset | {"topic": queue.topic, "group": "no group!"},
                expected=BAD_PARAMETER,
            ),
            Slip(
                what="reset of a queue that is not there",
                code=code.INVOKE_BROKER_TO_RESET_OFFSET,
                fields=reset | {"topic": queue.topic, "queueId": 4_711, "offset": 0},
                expected=BAD_PARAMETER,
            ),
            Slip(
                what="reset to what no queue has",
                code=code.INVOKE_BROKER_TO_RESET_OFFSET,
                fields=reset | {"topic": queue.topic, "queueId": queue.queue_id, "offset": _BEYOND},
                expected=SYSTEM_ERROR,
            ),
            Slip(
                what="clone to a group with an illegal name",
                code=code.CLONE_GROUP_OFFSET,
                fields={"srcGroup": self._group, "destGroup": "no group!"},
                expected=BAD_PARAMETER,
            ),
        ]

    def _of_modes(self) -> list[Slip]:
        code = RequestCode
        return [
            Slip(
                what="mode of a topic that is not there",
                code=code.SET_MESSAGE_REQUEST_MODE,
                body=json_body(topic=NOBODY, consumerGroup=self._group, mode="POP"),
                expected=NO_TOPIC,
            ),
            Slip(
                what="mode of a retry topic",
                code=code.SET_MESSAGE_REQUEST_MODE,
                body=json_body(topic=f"%RETRY%{NOBODY}", consumerGroup=self._group, mode="POP"),
                expected=NO_PERMISSION,
            ),
        ]

    def _of_messages(self) -> list[Slip]:
        queue, code = self.drill.queue, RequestCode
        held = Handle(
            start=0,
            pop_ms=1_700_000_000_000,
            invisible_ms=1_000,
            revive_queue=0,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
        )
        invisible = self.drill.place(
            consumerGroup=self._group, offset=0, extraInfo=held.text(0), invisibleTime=-1
        )
        stored = self.drill.rng.choice(self.drill.stored)
        position = int(stored.offset_msg_id[-_POSITION_DIGITS:], 16)
        return [
            Slip(
                what="a message that was popped once, invisible for less than no time",
                code=code.CHANGE_MESSAGE_INVISIBLETIME,
                fields=invisible,
                expected=BAD_PARAMETER,
            ),
            Slip(
                what="a message that nobody has popped, invisible for longer",
                code=code.CHANGE_MESSAGE_INVISIBLETIME,
                fields=invisible | {"invisibleTime": 1_000},
                expected=NO_MESSAGE,
            ),
            Slip(
                what="message by id of another topic",
                code=code.VIEW_MESSAGE_BY_ID,
                fields={"offset": position, "topic": NOBODY},
                expected=NO_PERMISSION,
            ),
            *(
                Slip(
                    what=f"pop by {expression!r}",
                    code=code.POP_MESSAGE,
                    fields=self.drill.place(
                        consumerGroup=self._group,
                        maxMsgNums=1,
                        invisibleTime=1_000,
                        pollTime=0,
                        initMode=0,
                        exp=expression,
                        expType=kind,
                    ),
                    expected=BAD_EXPRESSION,
                )
                for expression, kind in (("||", "TAG"), ("a = 1", "XPATH"))
            ),
        ]

    def incomplete(self) -> Slip:
        """Return a query that is right but for a field, which is not there or is no number."""
        rng, place = self.drill.rng, self.drill.place()
        queue = {name: place[name] for name in ("topic", "queueId")}
        code = RequestCode
        queries: tuple[tuple[RequestCode, dict[str, object]], ...] = (
            (code.GET_MAX_OFFSET, queue),
            (code.GET_MIN_OFFSET, queue),
            (code.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": 0}),
            (code.QUERY_CONSUMER_OFFSET, queue | {"consumerGroup": self._group}),
            (code.GET_TOPIC_STATS_INFO, {"topic": queue["topic"]}),
            (code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}),
            (
                code.QUERY_CONSUME_QUEUE,
                queue | {"index": 0, "count": 1, "consumerGroup": self._group},
            ),
            (
                code.QUERY_MESSAGE,
                {
                    "topic": queue["topic"],
                    "key": "k",
                    "maxNum": 1,
                    "beginTimestamp": 0,
                    "endTimestamp": 1,
                },
            ),
            (
                code.PULL_MESSAGE,
                queue
                | {"consumerGroup": self._group, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4},
            ),
            (code.UPDATE_CONSUMER_OFFSET, queue | {"consumerGroup": NOBODY, "commitOffset": 0}),
            (
                code.ACK_MESSAGE,
                queue | {"consumerGroup": NOBODY, "extraInfo": "", "offset": 0},
            ),
        )
        request, fields = rng.choice(queries)
        texts = {"topic", "consumerGroup", "key", "extraInfo"}
        numbers = sorted(fields.keys() - texts)
        # An ack's extraInfo may be missing; of query consume queue the group may.
        optional = {"extraInfo"} | ({"consumerGroup"} if "index" in fields else set())
        if numbers and rng.random() < 0.5:
            name, text = rng.choice(numbers), rng.choice(_NUMBERS)
            return Slip(
                what=f"{request.name.lower()} with {text!r} as its {name}",
                code=request,
                fields=fields | {name: text},
                expected=SYSTEM_ERROR,
            )
        missing = rng.choice(sorted(fields.keys() - optional))
        return Slip(
            what=f"{request.name.lower()} without its {missing}",
            code=request,
            fields={name: value for name, value in fields.items() if name != missing},
            expected=SYSTEM_ERROR,
        )


def of_nobody() -> list[Slip]:
    """Return queries of what would be there, had a slip been carried out."""
    code = RequestCode
    return [
        Slip(
            what="topic of nobody",
            code=code.GET_TOPIC_CONFIG,
            fields={"topic": NOBODY},
            expected=NO_TOPIC,
        ),
        Slip(
            what="members of nobody",
            code=code.GET_CONSUMER_LIST_BY_GROUP,
            fields={"consumerGroup": NOBODY},
            expected=SYSTEM_ERROR,
        ),
        Slip(
            what="producers of nobody",
            code=code.GET_PRODUCER_CONNECTION_LIST,
            fields={"producerGroup": NOBODY},
            expected=SYSTEM_ERROR,
        ),
        Slip(
            what="status of nobody's members",
            code=code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            fields={"group": NOBODY, "topic": DEFAULT_TOPIC},
            expected=SYSTEM_ERROR,
        ),
        Slip(
            what="running info of nobody",
            code=code.GET_CONSUMER_RUNNING_INFO,
            fields={"consumerGroup": NOBODY, "clientId": NOBODY},
            expected=SYSTEM_ERROR,
        ),
        Slip(
            what="permissions of nobody",
            code=code.AUTH_GET_ACL,
            fields={"subject": f"User:{NOBODY}"},
            expected=f"{NO_PERMISSION} The subject is not exist.",
        ),
        Slip(
            what="counter of nobody",
            code=code.VIEW_BROKER_STATS_DATA,
            fields={"statsName": "TOPIC_PUT_NUMS", "statsKey": NOBODY},
            expected=SYSTEM_ERROR,
        ),
        Slip(
            what="a request of clients' own",
            code=code.NOTIFY_CONSUMER_IDS_CHANGED,
            fields={"consumerGroup": NOBODY},
            expected=_NOT_SERVED,
        ),
        Slip(
            what="a name server's request",
            code=code.GET_ROUTEINFO_BY_TOPIC,
            fields={"topic": DEFAULT_TOPIC},
            expected=_NOT_SERVED,
        ),
    ]


def _with_remark(answer: RemotingCommand) -> str:
    return f"{answer.code} {answer.remark}"
