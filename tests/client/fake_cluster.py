"""A scripted broker group and name server on real sockets, for the client's tests.

The group's nodes share one state, as a replicated group would: what its leader stores, every later
leader has. Other nodes answer code 14 with the leader's address. `script` decides per request how
the leader behaves: answer, answer with an error, carry out and stay silent, or hang up.
"""

from __future__ import annotations

import asyncio
import enum
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from remoting.connections.connection import Connection
from remoting.connections.server import RemotingServer
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import LANGUAGE_PYTHON, RemotingCommand
from remoting.protocol.leader_hint import not_leader_remark
from remoting.records.message import (
    MessageRecord,
    decode_batch_body,
    decode_properties,
    encode_properties,
    encode_record,
    tags_code,
)

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


class Act(enum.Enum):
    """What the leader does with a request besides answering it properly."""

    ANSWER = "answer"
    STORE_SILENTLY = "store_silently"  # carried out, no answer
    IGNORE = "ignore"  # not carried out, no answer
    STORE_AND_HANG_UP = "store_and_hang_up"
    HANG_UP = "hang_up"


@dataclass
class Seen:
    """A request as it reached a node."""

    node: int
    command: RemotingCommand
    at_s: float = field(default_factory=time.monotonic)


@dataclass
class Half:
    record: MessageRecord
    decision: str | None = None


@dataclass
class FakeGroup:
    """One broker group. `script(seen)` returns an Act, or (code, remark) for an error answer."""

    name: str
    node_count: int = 3
    queue_count: int = 4
    leader: int | None = 0
    dedupe: bool = True
    send_back_code: int = 3
    send_back_remark: str = "scripted"
    script: Callable[[Seen], Act | tuple[int, str]] = lambda _: Act.ANSWER
    seen: list[Seen] = field(default_factory=list)
    queues: dict[tuple[str, int], list[MessageRecord]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    uniq_keys: dict[str, MessageRecord] = field(default_factory=dict)
    halves: list[Half] = field(default_factory=list)
    members: dict[str, dict[str, Connection]] = field(default_factory=dict)
    producers: dict[str, list[Connection]] = field(default_factory=dict)
    hints: dict[int, str] = field(default_factory=dict)
    slaves_are_busy: bool = False  # as RocketMQ's: they name no leader, but know the members
    created: list[str] = field(default_factory=list)
    locks: dict[tuple[str, str, int], str] = field(default_factory=dict)
    min_offset: int = 0
    position: int = 0
    language: int = LANGUAGE_PYTHON  # of its answers to heartbeats

    def __post_init__(self) -> None:
        self.servers = [self._server(node) for node in range(self.node_count)]
        self._stored = asyncio.Event()
        self._held: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for server in self.servers:
            await server.start()

    async def stop(self) -> None:
        for task in self._held:
            task.cancel()
        for server in self.servers:
            await server.stop()

    async def stop_node(self, node: int) -> None:
        await self.servers[node].stop()

    def address(self, node: int) -> str:
        return self.servers[node].address

    def sends(self, code: RequestCode = RequestCode.SEND_MESSAGE_V2) -> list[Seen]:
        return [seen for seen in self.seen if seen.command.code == code]

    def lead(self, node: int | None) -> None:
        self.leader = node

    def stored(self, topic: str) -> list[MessageRecord]:
        return [
            record
            for (name, _), records in sorted(self.queues.items())
            if name == topic
            for record in records
        ]

    def ask_check(self, half_offset: int, group: str) -> None:
        """CHECK_TRANSACTION_STATE to the first producer of the group."""
        half = self.halves[half_offset]
        command = RemotingCommand(
            code=RequestCode.CHECK_TRANSACTION_STATE,
            ext_fields={
                "tranStateTableOffset": str(half_offset),
                "commitLogOffset": str(half.record.physical_offset),
                "msgId": half.record.property_map()["UNIQ_KEY"],
                "transactionId": half.record.property_map()["UNIQ_KEY"],
                "offsetMsgId": half.record.offset_msg_id,
            },
            body=encode_record(half.record),
        )
        connections = [item for item in self.producers[group] if not item.closed]
        connections[0].oneway(command)

    def notify_members(self, group: str) -> None:
        for connection in self.members.get(group, {}).values():
            if not connection.closed:
                connection.oneway(
                    RemotingCommand(
                        code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                        ext_fields={"consumerGroup": group},
                    )
                )

    # How nodes behave.

    def _server(self, node: int) -> RemotingServer:
        def on_request(connection: Connection, command: RemotingCommand) -> None:
            self._on_request(node, connection, command)

        return RemotingServer("127.0.0.1", 0, on_request, self._on_close)

    def _on_close(self, connection: Connection) -> None:
        for group, members in self.members.items():
            gone = [client for client, item in members.items() if item is connection]
            for client in gone:
                del members[client]
            if gone:
                self.notify_members(group)

    def _on_request(self, node: int, connection: Connection, command: RemotingCommand) -> None:
        seen = Seen(node, command)
        self.seen.append(seen)
        if node != self.leader and command.code not in {
            RequestCode.HEART_BEAT,
            RequestCode.UNREGISTER_CLIENT,
        }:
            if self.slaves_are_busy:
                if command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                    answer = self._carry_out(node, connection, command)
                    assert answer is not None
                    connection.send(answer)
                else:
                    connection.send(command.response(2, "[REJECTREQUEST]system busy"))
                return
            leader = None if self.leader is None else self.address(self.leader)
            leader = self.hints.get(node, leader)
            connection.send(command.response(14, not_leader_remark(leader)))
            return
        act = self.script(seen)
        if isinstance(act, tuple):
            connection.send(command.response(*act))
            return
        if act in {Act.IGNORE, Act.HANG_UP}:
            answer = None
        else:
            answer = self._carry_out(node, connection, command)
        if act in {Act.HANG_UP, Act.STORE_AND_HANG_UP}:
            connection.abort("scripted")
        elif act is Act.ANSWER and answer is not None and not command.is_oneway:
            connection.send(answer)

    def _carry_out(
        self, node: int, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        fields = command.ext_fields
        match command.code:
            case RequestCode.SEND_MESSAGE_V2:
                return self._send(node, command)
            case RequestCode.SEND_BATCH_MESSAGE:
                return self._send_batch(node, command)
            case RequestCode.HEART_BEAT:
                return self._heartbeat(connection, command)
            case RequestCode.UNREGISTER_CLIENT:
                group = fields.get("consumerGroup")
                if group is not None:
                    self.members.get(group, {}).pop(fields["clientID"], None)
                    self.notify_members(group)
                return command.response(0)
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                members = self.members.get(fields["consumerGroup"], {})
                if not members:
                    return command.response(1, "no consumer")
                body = json.dumps({"consumerIdList": sorted(members)}).encode()
                return command.response(0, body=body)
            case RequestCode.QUERY_CONSUMER_OFFSET:
                key = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
                if key not in self.offsets:
                    return command.response(22, "not found")
                return command.response(0, ext_fields={"offset": str(self.offsets[key])})
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                key = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
                self.offsets[key] = int(fields["commitOffset"])
                return command.response(0)
            case RequestCode.GET_MAX_OFFSET:
                records = self.queues.get((fields["topic"], int(fields["queueId"])), [])
                return command.response(0, ext_fields={"offset": str(len(records))})
            case RequestCode.GET_MIN_OFFSET:
                return command.response(0, ext_fields={"offset": str(self.min_offset)})
            case RequestCode.PULL_MESSAGE:
                return self._pull(connection, command)
            case RequestCode.END_TRANSACTION:
                return self._end(command)
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                records = self.queues.get((fields["topic"], int(fields["queueId"])), [])
                at = int(fields["timestamp"])
                found = sum(record.store_timestamp_ms < at for record in records)
                return command.response(0, ext_fields={"offset": str(found)})
            case RequestCode.UPDATE_AND_CREATE_TOPIC:
                self.created.append(fields["topic"])
                return command.response(0)
            case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
                return self._lock(command)
            case RequestCode.CONSUMER_SEND_MSG_BACK:
                return command.response(self.send_back_code, self.send_back_remark)
            case _:
                return command.response(3, "not in this fake")

    def _lock(self, command: RemotingCommand) -> RemotingCommand:
        wanted = json.loads(command.body)
        held = []
        for queue in wanted["mqSet"]:
            key = (wanted["consumerGroup"], queue["topic"], queue["queueId"])
            if command.code == RequestCode.UNLOCK_BATCH_MQ:
                if self.locks.get(key) == wanted["clientId"]:
                    del self.locks[key]
            elif self.locks.setdefault(key, wanted["clientId"]) == wanted["clientId"]:
                held.append(queue)
        return command.response(0, body=json.dumps({"lockOKMQSet": held}).encode())

    def _append(self, node: int, topic: str, queue_id: int, record: MessageRecord) -> None:
        records = self.queues.setdefault((topic, queue_id), [])
        record.queue_offset = len(records)
        record.physical_offset = self.position
        record.store_host = self.address(node)
        record.store_timestamp_ms = time.time_ns() // 1_000_000
        self.position += 1000
        records.append(record)
        self._stored.set()
        self._stored = asyncio.Event()

    def _send(self, node: int, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        properties = decode_properties(fields["i"].encode())
        uniq_key = properties["UNIQ_KEY"]
        record = self.uniq_keys.get(uniq_key) if self.dedupe else None
        if record is None:
            record = MessageRecord(
                topic=fields["b"],
                queue_id=int(fields["e"]),
                body=command.body,
                properties=encode_properties(properties),
                flag=int(fields["h"]),
                sys_flag=int(fields["f"]) & ~0xC,
                born_timestamp_ms=int(fields["g"]),
            )
            if properties.get("TRAN_MSG") == "true":
                self._append(node, HALF_TOPIC, 0, record)
                self.halves.append(Half(record))
            else:
                self._append(node, record.topic, record.queue_id, record)
            self.uniq_keys[uniq_key] = record
        return command.response(
            0,
            ext_fields={
                "msgId": record.offset_msg_id,
                "queueId": fields["e"],
                "queueOffset": str(record.queue_offset),
                "transactionId": uniq_key,
            },
        )

    def _send_batch(self, node: int, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        records = []
        for item in decode_batch_body(command.body):
            record = MessageRecord(
                topic=fields["b"],
                queue_id=int(fields["e"]),
                body=item.body,
                properties=item.properties,
                flag=item.flag,
                born_timestamp_ms=int(fields["g"]),
            )
            self._append(node, record.topic, record.queue_id, record)
            records.append(record)
        return command.response(
            0,
            ext_fields={
                "msgId": ",".join(record.offset_msg_id for record in records),
                "queueId": fields["e"],
                "queueOffset": str(records[0].queue_offset),
            },
        )

    def _heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        data = json.loads(command.body)
        for producer in data["producerDataSet"]:
            connections = self.producers.setdefault(producer["groupName"], [])
            if connection not in connections:
                connections.append(connection)
        for consumer in data["consumerDataSet"]:
            group = self.members.setdefault(consumer["groupName"], {})
            new = data["clientID"] not in group
            group[data["clientID"]] = connection
            if new:
                self.notify_members(consumer["groupName"])
        answer = command.response(0)
        answer.language = self.language
        return answer

    def _pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        answer = self._pull_now(command)
        fields = command.ext_fields
        if answer.code != 19 or not int(fields["sysFlag"]) & 2:
            return answer
        task = asyncio.get_running_loop().create_task(self._hold(connection, command))
        self._held.add(task)
        task.add_done_callback(self._held.discard)
        return None

    async def _hold(self, connection: Connection, command: RemotingCommand) -> None:
        deadline = int(command.ext_fields["suspendTimeoutMillis"]) / 1000
        answer = self._pull_now(command)
        try:
            async with asyncio.timeout(deadline):
                while answer.code == 19:
                    await self._stored.wait()
                    answer = self._pull_now(command)
        except TimeoutError:
            answer = self._pull_now(command)
        connection.send(answer)

    def _pull_now(self, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        offset = int(fields["queueOffset"])
        records = self.queues.get((fields["topic"], int(fields["queueId"])), [])
        expression = fields["subscription"]
        wanted = (
            None
            if expression == "*"
            else {tags_code(tag.strip()) for tag in expression.split("||")}
        )
        code, found, following = 19, [], offset
        if not self.min_offset <= offset <= len(records):
            code = 21
            following = self.min_offset if offset < self.min_offset else len(records)
        elif offset < len(records):
            page = records[offset : offset + int(fields["maxMsgNums"])]
            following = offset + len(page)
            found = [
                record
                for record in page
                if wanted is None or tags_code(record.property_map().get("TAGS")) in wanted
            ]
            code = 0 if found else 20
        return command.response(
            code,
            ext_fields={
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(following),
                "minOffset": str(self.min_offset),
                "maxOffset": str(len(records)),
            },
            body=b"".join(encode_record(record) for record in found),
        )

    def _end(self, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        half = self.halves[int(fields["tranStateTableOffset"])]
        assert half.record.physical_offset == int(fields["commitLogOffset"])
        assert half.record.property_map()["PGROUP"] == fields["producerGroup"]
        words = {"8": "committed", "12": "rolled back"}
        decision = words.get(fields["commitOrRollback"])
        if decision is None:
            return command.response(0)
        if half.decision not in {None, decision}:
            return command.response(604, f"transaction already {half.decision}")
        half.decision = decision
        return command.response(0)


class FakeNameServer:
    """Answers route requests from the groups' present state, unless `frozen` or `silent`."""

    def __init__(self, groups: list[FakeGroup], topics: list[str]) -> None:
        self.groups = groups
        self.topics = topics
        self.lookups = 0
        self.silent = False
        self.frozen: bytes | None = None
        self._server = RemotingServer("127.0.0.1", 0, self._on_request)

    @property
    def address(self) -> str:
        return self._server.address

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    def freeze(self) -> None:
        """Go on answering with the route as it is now."""
        self.frozen = self.route()

    def cluster_info(self) -> bytes:
        return json.dumps(
            {
                "brokerAddrTable": {broker["brokerName"]: broker for broker in self.brokers()},
                "clusterAddrTable": {"DefaultCluster": [group.name for group in self.groups]},
            }
        ).encode()

    def brokers(self) -> list[dict[str, object]]:
        brokers: list[dict[str, object]] = []
        for group in self.groups:
            addresses = {}
            for node in range(group.node_count):
                addresses["0" if node == group.leader else str(node + 1)] = group.address(node)
            brokers.append(
                {"brokerName": group.name, "cluster": "DefaultCluster", "brokerAddrs": addresses}
            )
        return brokers

    def route(self) -> bytes:
        queues = [
            {
                "brokerName": group.name,
                "perm": 6,
                "readQueueNums": group.queue_count,
                "writeQueueNums": group.queue_count,
                "topicSysFlag": 0,
            }
            for group in self.groups
        ]
        route = {"brokerDatas": self.brokers(), "queueDatas": queues, "filterServerTable": {}}
        return json.dumps(route).encode()

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        self.lookups += 1
        if self.silent:
            return
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            connection.send(command.response(0, body=self.cluster_info()))
            return
        created = [topic for group in self.groups for topic in group.created]
        if command.ext_fields.get("topic") not in [*self.topics, *created]:
            connection.send(command.response(17, "No topic route info"))
        else:
            connection.send(command.response(0, body=self.frozen or self.route()))
