"""Where groups go on, as an administrator wants it: resets and clones of consumer offsets.

Place in the data path: INVOKE_BROKER_TO_RESET_OFFSET puts pending resets into the log
(`broker.state.offset_resets`): pulls are answered with them, whether members are online or come
later. With useServerSideResetOffset off the members are told as RocketMQ 4.9 does, by request 220.
CLONE_GROUP_OFFSET copies what one group has committed to another.
Source: RocketMQ AdminBrokerProcessor.resetOffsetInner, Broker2Client.resetOffset.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.entry.payload import OffsetCommand, ResetCommand
from broker.entry.topics import Topic, TopicNameError, check_group_name
from broker.request.commit import commit
from broker.request.context import BrokerContext
from broker.request.known_groups import is_known_group, offsets_of
from broker.request.queue_times import first_stored_at
from broker.request.request import RefusedError, Request
from broker.state.offset_resets import RESETS_MAX
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from remoting.protocol.queue_table import QueueName, encode_queue_table

__all__ = ["ResetProcessor"]

_CLONED_OFFSETS_MAX: Final = 10_000  # they stand in one entry


class ResetProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def reset(self, request: Request) -> None:
        """INVOKE_BROKER_TO_RESET_OFFSET: answers with the offsets, once they are committed."""
        context = self._context
        context.require_leader()
        group, name = request.text("group"), request.text("topic")
        topic = context.proposer.topic(name)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {name} does not exist")
        _check_group(group)
        if not is_known_group(context, group):
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        server_side = context.config.use_server_side_reset_offset
        if not server_side and not context.clients.consumers(group):
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} "
                f"Timestamp: {request.integer('timestamp')}",
            )
        offsets = self._wanted(request, group, topic)
        table = encode_queue_table(
            (QueueName(context.config.group, queue_id, name), offset)
            for queue_id, offset in offsets.items()
        )
        body = msgspec.json.encode({"offsetTable": table})
        if not server_side:
            self._tell_members(request, group, body)
            request.reply(ResponseCode.SUCCESS, body=body)
            return
        self._check_room(group, name, offsets)

        def answer() -> None:
            for queue_id in offsets:  # those that wait at the end hear of it now
                context.long_polling.release(name, queue_id)
            request.reply(ResponseCode.SUCCESS, body=body)

        rows = [[queue_id, offset] for queue_id, offset in offsets.items()]
        commit(context, request, [ResetCommand(group, name, rows)], answer=answer)

    def clone(self, request: Request) -> None:
        """CLONE_GROUP_OFFSET: the destination goes on where the source is."""
        context = self._context
        context.require_leader()
        source, destination = request.text("srcGroup"), request.text("destGroup")
        wanted = request.fields.get("topic") or None
        for group in (source, destination):
            _check_group(group)
        if not is_known_group(context, source):
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {source} not exist!"
            )
        subscribed = context.clients.subscriptions(source)
        offline = request.boolean_or("offline", False)
        commands = [
            OffsetCommand(destination, topic, queue_id, offset)
            for (topic, queue_id), offset in offsets_of(context, source).items()
            if topic in context.state.topics
            and wanted in {None, topic}
            and (offline or not subscribed or topic in subscribed)
        ]
        known = context.state.consumer_offsets
        fresh = sum(
            (destination, command.topic, command.queue_id) not in known for command in commands
        )
        if (
            len(commands) > _CLONED_OFFSETS_MAX
            or fresh + len(known) > context.state.limits.consumer_offsets_max
        ):
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(commands)} offsets are more than this broker takes: name a topic",
            )
        commit(context, request, commands)

    # Parts -------------------------------------------------------------------------------------

    def _wanted(self, request: Request, group: str, topic: Topic) -> dict[int, int]:
        """Queue id -> offset. Raises RefusedError."""
        queue_id = request.integer_or("queueId", -1)
        if queue_id >= topic.read_queue_count:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id}: topic {topic.name} has {topic.read_queue_count} queues",
            )
        if queue_id >= 0:
            offset = request.integer_or("offset", -1)
            if offset == -1:
                return {queue_id: self._at(request, group, topic, queue_id)}
            queue = self._context.queues.get(topic.name, queue_id)
            if not queue.min_offset <= offset <= queue.next_offset:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range "
                    f"[{queue.min_offset}-{queue.next_offset}]",
                )
            return {queue_id: offset}
        return {
            queue_id: self._at(request, group, topic, queue_id)
            for queue_id in range(topic.read_queue_count)
        }

    def _at(self, request: Request, group: str, topic: Topic, queue_id: int) -> int:
        """Where the time is; not further than the group has come, unless it is forced."""
        context = self._context
        timestamp_ms = request.integer("timestamp")
        queue = context.queues.get(topic.name, queue_id)
        if timestamp_ms < 0:  # clients write -1 for "at the end"
            offset = queue.next_offset
        else:
            offset = first_stored_at(context, queue, timestamp_ms)
        known = context.state.consumer_offsets.get((group, topic.name, queue_id))
        if known is not None and not request.boolean_or("isForce", True):
            offset = max(queue.min_offset, min(offset, known))
        return offset

    def _check_room(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        state = self._context.state
        fresh = sum((group, topic, queue_id) not in state.consumer_offsets for queue_id in offsets)
        if (
            len(state.resets) + len(offsets) > RESETS_MAX
            or len(state.consumer_offsets) + fresh > state.limits.consumer_offsets_max
        ):
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "too many offset resets are pending")

    def _tell_members(self, request: Request, group: str, body: bytes) -> None:
        """RESET_CONSUMER_CLIENT_OFFSET, oneway."""
        for client in self._context.clients.consumers(group).values():
            if not client.connection.closed:
                client.connection.oneway(
                    RemotingCommand(
                        code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                        flag=FLAG_ONEWAY,
                        ext_fields={
                            "topic": request.text("topic"),
                            "group": group,
                            "timestamp": request.text("timestamp"),
                            "isForce": "true",
                        },
                        body=body,
                    )
                )


def _check_group(group: str) -> None:
    try:
        check_group_name(group)
    except TopicNameError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
