"""Resets and clones of consumer offsets, as administrators request them.

Place in the data path: INVOKE_BROKER_TO_RESET_OFFSET appends pending resets to the log
(`broker.state.offset_resets`): pulls are answered with them, whether members are online or connect
later. With useServerSideResetOffset off the members are notified as in RocketMQ 4.9, by request
220. CLONE_GROUP_OFFSET copies the offsets that one group has committed to another.
Source: RocketMQ AdminBrokerProcessor.resetOffsetInner, Broker2Client.resetOffset.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.entry.payload import OffsetCommand, ResetCommand
from broker.entry.topics import Topic, TopicNameError, check_group_name
from broker.request.commit import commit
from broker.request.desk import Desk
from broker.request.known_groups import is_known_group, offsets_of
from broker.request.leadership import Leadership
from broker.request.queue_times import first_stored_at
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.offset_resets import RESETS_MAX
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from remoting.protocol.headers import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader
from remoting.protocol.queue_table import QueueName, encode_queue_table

__all__ = ["OffsetResetProcessor"]

_CLONED_OFFSETS_MAX: Final = 10_000  # they stand in one entry


class OffsetResetProcessor:
    """Requests to set consumer offsets. Handlers raise RefusedError; else the answer follows."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk

    def reset(self, header: ResetOffsetRequestHeader, request: Request) -> None:
        """Reset a group's offsets in a topic (INVOKE_BROKER_TO_RESET_OFFSET); the answer names the
        offsets, once they are committed."""
        replica, leadership, desk = self._replica, self._leadership, self._desk
        group, name = header.group, header.topic
        topic = leadership.proposer.topic(name)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {name} does not exist")
        _check_group(group)
        if not is_known_group(replica, desk, group):
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        server_side = replica.config.use_server_side_reset_offset
        if not server_side and not desk.clients.consumers(group):
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} "
                f"Timestamp: {header.timestamp_ms}",
            )
        offsets = self._wanted(header, topic)
        table = encode_queue_table(
            (QueueName(replica.config.group, queue_id, name), offset)
            for queue_id, offset in offsets.items()
        )
        body = msgspec.json.encode({"offsetTable": table})
        if not server_side:
            self._notify_members(header, body)
            request.reply(ResponseCode.SUCCESS, body=body)
            return
        self._check_room(group, name, offsets)

        def answer() -> None:
            for queue_id in offsets:  # what is held at the queue's end is answered now
                desk.long_polling.release(name, queue_id)
                desk.pop_polling.wake_one(name, group, queue_id)
            request.reply(ResponseCode.SUCCESS, body=body)

        rows = [[queue_id, offset] for queue_id, offset in offsets.items()]
        commit(leadership, request, [ResetCommand(group, name, rows)], answer=answer)

    def clone(self, header: CloneGroupOffsetRequestHeader, request: Request) -> None:
        """Commit the offsets of the source group for the destination group, too
        (CLONE_GROUP_OFFSET)."""
        replica, desk = self._replica, self._desk
        source, destination = header.src_group, header.dest_group
        wanted = header.topic or None
        for group in (source, destination):
            _check_group(group)
        if not is_known_group(replica, desk, source):
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {source} not exist!"
            )
        subscribed = desk.clients.subscriptions(source)
        commands = [
            OffsetCommand(destination, topic, queue_id, offset)
            for (topic, queue_id), offset in offsets_of(replica, source).items()
            if topic in replica.state.topics
            and not self._leadership.proposer.is_being_deleted(topic)
            and wanted in {None, topic}
            and (header.offline or not subscribed or topic in subscribed)
        ]
        known = replica.state.consumer_offsets
        fresh = sum(
            (destination, command.topic, command.queue_id) not in known for command in commands
        )
        if (
            len(commands) > _CLONED_OFFSETS_MAX
            or fresh + len(known) > replica.state.limits.consumer_offsets_max
        ):
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(commands)} offsets are more than this broker takes: name a topic",
            )
        commit(self._leadership, request, commands)

    # Parts -------------------------------------------------------------------------------------

    def _wanted(self, header: ResetOffsetRequestHeader, topic: Topic) -> dict[int, int]:
        """Return the requested offset of each queue. Raises RefusedError."""
        queue_id = -1 if header.queue_id is None else header.queue_id
        if queue_id >= topic.read_queue_count:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id}: topic {topic.name} has {topic.read_queue_count} queues",
            )
        if queue_id >= 0:
            offset = header.offset
            if offset is None or offset == -1:
                return {queue_id: self._at(header, queue_id)}
            queue = self._replica.queues.get(topic.name, queue_id)
            if not queue.min_offset <= offset <= queue.next_offset:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range "
                    f"[{queue.min_offset}-{queue.next_offset}]",
                )
            return {queue_id: offset}
        return {queue_id: self._at(header, queue_id) for queue_id in range(topic.read_queue_count)}

    def _at(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """Return the offset of the requested time in a queue, or the group's own offset if that is
        less and the reset is not forced."""
        replica = self._replica
        queue = replica.queues.get(header.topic, queue_id)
        if header.timestamp_ms < 0:  # clients write -1 for "at the end"
            offset = queue.next_offset
        else:
            offset = first_stored_at(replica, queue, header.timestamp_ms)
        known = replica.state.consumer_offsets.get((header.group, header.topic, queue_id))
        if known is not None and not header.is_force:
            offset = max(queue.min_offset, min(offset, known))
        return offset

    def _check_room(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Raises RefusedError where the state has no room for these resets."""
        state = self._replica.state
        fresh = sum((group, topic, queue_id) not in state.consumer_offsets for queue_id in offsets)
        if (
            len(state.resets) + len(offsets) > RESETS_MAX
            or len(state.consumer_offsets) + fresh > state.limits.consumer_offsets_max
        ):
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "too many offset resets are pending")

    def _notify_members(self, header: ResetOffsetRequestHeader, body: bytes) -> None:
        """Send RESET_CONSUMER_CLIENT_OFFSET, oneway, to the connected members."""
        notice = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp_ms=header.timestamp_ms, is_force=True
        )
        for client in self._desk.clients.consumers(header.group).values():
            if not client.connection.closed:
                client.connection.oneway(
                    RemotingCommand(
                        code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                        flag=FLAG_ONEWAY,
                        ext_fields=notice.to_ext_fields(),
                        body=body,
                    )
                )


def _check_group(group: str) -> None:
    """Raises RefusedError where that is no legal name of a group."""
    try:
        check_group_name(group)
    except TopicNameError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
