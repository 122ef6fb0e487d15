"""Registration with the name servers.

Place in the data path: routes come from here. The group's ready leader registers as broker id 0,
a follower as 1 + its place among the members' sorted names, a slave as that among the slaves'; the
DataVersion's state version carries the Raft term, so that a stale leader never overwrites a newer
one (docs/DESIGN.md section 6). The broker registers with every name server every
`registration_interval_ms`, and at once when the role, the term or the topics change; name servers
don't know of each other. The creation or deletion of a topic is answered when all of them have been
notified, or after a second: clients request the route at once.

Source: RocketMQ BrokerController.registerBrokerAll, facts section 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.entry.topics import PERM_READ, PERM_WRITE, Topic
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.route import (
    MASTER_ID,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    encode_register_body,
    register_body_crc,
)

__all__ = ["Registration"]

_log = logging.getLogger(__name__)
_TIMEOUT_MS = 3_000
_RETRY_AFTER_FAILURE_MS = 500
_WAIT_S_MAX = 1.0
_EVERYTHING = PERM_READ | PERM_WRITE


class _Waiting:
    """Request that waits until these name servers have been notified."""

    def __init__(self, left: set[str], answer: Callable[[], None]) -> None:
        self._left = left
        self._answer: Callable[[], None] | None = answer

    def registered(self, name_server: str) -> None:
        self._left.discard(name_server)
        if not self._left:
            self.end()

    def end(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer()


class Registration:
    """Registration of one broker; one `run` task per name server, so that a dead one doesn't delay
    the others."""

    def __init__(self, replica: Replica, leadership: Leadership, remoting: RemotingClient) -> None:
        self._replica = replica
        self._leadership = leadership
        self._remoting = remoting
        self._changed = {address: asyncio.Event() for address in replica.config.name_servers}
        self._waiting: dict[str, list[_Waiting]] = {address: [] for address in self._changed}

    def changed(self) -> None:
        """Register with every name server now: role, term or topics have changed."""
        for event in self._changed.values():
            event.set()

    def when_registered(self, answer: Callable[[], None]) -> None:
        """Register with every name server now, and call `answer` when all have answered, or a
        second later: one that does not answer must not delay requests for long."""
        if not self._changed:
            answer()
            return
        waiting = _Waiting(set(self._changed), answer)
        for queue in self._waiting.values():
            queue.append(waiting)
        asyncio.get_running_loop().call_later(_WAIT_S_MAX, waiting.end)
        self.changed()

    async def run(self, name_server: str) -> None:
        """Keep this broker registered with one name server until cancelled."""
        interval_ms = self._replica.config.registration_interval_ms
        event = self._changed[name_server]
        healthy = True
        while True:
            event.clear()
            # A request during a registration waits for the next one: this one may be older.
            waiting, self._waiting[name_server] = self._waiting[name_server], []
            registered = await self._register(name_server, log_failure=healthy)
            for each in waiting:
                each.registered(name_server)
            healthy = registered
            try:
                async with asyncio.timeout(
                    (interval_ms if registered else _RETRY_AFTER_FAILURE_MS) / 1000
                ):
                    await event.wait()
            except TimeoutError:
                continue

    async def unregister(self) -> None:
        """Unregister from every name server; if one can't be reached, the entry expires there."""
        fields = self._identity()
        for name_server in self._changed:
            command = RemotingCommand(code=RequestCode.UNREGISTER_BROKER, ext_fields=fields)
            try:
                await self._remoting.request(name_server, command, 1_000)
            except RemotingError as error:
                _log.info("name server %s was not told of the stop: %s", name_server, error)

    async def _register(self, name_server: str, *, log_failure: bool) -> bool:
        body = encode_register_body(self._body())
        command = RemotingCommand(
            code=RequestCode.REGISTER_BROKER,
            ext_fields={
                **self._identity(),
                "haServerAddr": self._ha_address(),
                "compressed": "false",
                "bodyCrc32": str(register_body_crc(body)),
                "heartbeatTimeoutMillis": str(4 * self._replica.config.registration_interval_ms),
            },
            body=body,
        )
        try:
            answer = await self._remoting.request(name_server, command, _TIMEOUT_MS)
        except RemotingError as error:
            if log_failure:
                _log.warning("name server %s: registration failed: %s", name_server, error)
            return False
        if answer.code != ResponseCode.SUCCESS:
            _log.warning(
                "name server %s refused the registration: %d %s",
                name_server,
                answer.code,
                answer.remark,
            )
            return False
        return True

    def _ha_address(self) -> str:
        """Return where slaves dial this node; RocketMQ's slaves take it from the name servers."""
        config = self._replica.config
        return config.peers[config.node] if config.is_master_slave else config.advertised

    def _identity(self) -> dict[str, str]:
        config, status = self._replica.config, self._replica.log.status()
        if config.is_master_slave:
            broker_id = config.broker_id
        elif self._leadership.ready:
            broker_id = MASTER_ID
        else:
            members = sorted({*status.voters, *status.learners, config.node})
            broker_id = 1 + members.index(config.node)
        return {
            "brokerName": config.group,
            "brokerAddr": config.advertised,
            "clusterName": config.cluster,
            "brokerId": str(broker_id),
        }

    def _body(self) -> RegisterBrokerBody:
        state, status = self._replica.state, self._replica.log.status()
        return RegisterBrokerBody(
            data_version=DataVersion(
                state_version=status.term,
                timestamp_ms=state.topics_changed_ms,
                counter=state.topics_version + self._replica.settings_changes,
            ),
            topics=[
                _wire(topic, self._replica.config.broker_permission)
                for topic in state.topics.values()
            ],
        )


def _wire(topic: Topic, permission: int) -> TopicConfig:
    return TopicConfig(
        topic_name=topic.name,
        read_queue_nums=topic.read_queue_count,
        write_queue_nums=topic.write_queue_count,
        perm=topic.perm if permission == _EVERYTHING else topic.perm & permission,
        topic_filter_type=topic.filter_type,
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=dict(topic.attributes),
    )
