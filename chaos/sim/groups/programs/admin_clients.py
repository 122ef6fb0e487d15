"""Administrators: users and permissions, consumer groups, transactions that were given up; and a
consumer that commits offsets oneway and queries them at once.

Place in the data path: `programs` runs them on client machines; their requests and answers end in
`answered_requests`, the effects in `registry_model` and `log_model`. Each is the only one who
changes what it changes.
"""

from __future__ import annotations

import asyncio
import json
import random

from broker.entry.topics import HALF_TOPIC, TRANS_CHECK_MAX_TOPIC
from chaos.sim.groups.models.stored import Stored
from chaos.sim.groups.programs.clients import PAUSE_AFTER_ERROR_S, TOPIC, Desk, until_known
from chaos.sim.groups.programs.reset_clients import RESET_GROUP
from chaos.sim.groups.programs.settings import GROUP
from chaos.sim.machine.virtual_host import current
from client.administer.admin import Admin, AdminSettings
from client.connection.broker_call import call_group
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from remoting.records.message_id import offset_msg_id

__all__ = ["Discarder", "OnewayCommitter", "Registrar", "Resumer"]

ONEWAY_GROUP = "OW"
_TIMEOUT_MS = 3_000
_NEWEST_HALVES = 5
_PACE = 3  # so many times rarer than sends
_USERS = ("ada", "bob")
_DELETE_GROUP_RATE = 0.2
_COMMIT_RATE = 0.3
_GROUPS = ("X0", "X1", RESET_GROUP)


class Registrar:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._count = 0  # makes what it writes unique

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        settings = AdminSettings(timeout_ms=_TIMEOUT_MS, instance=desk.instance())
        admin = Admin(desk.name_servers, settings=settings)
        await admin.start()
        while True:
            pace = _PACE * desk.options.send_interval_ms / 1000
            await asyncio.sleep(rng.expovariate(1) * pace)
            if not desk.sending:
                continue
            self._count += 1
            act = rng.choice((self._set_user, self._grant, self._delete_user, self._set_group))
            if rng.random() < _DELETE_GROUP_RATE:
                act = self._delete_group
            elif rng.random() < _COMMIT_RATE:
                act = self._commit
            try:
                await act(admin, rng)
            except ClientError:
                desk.counts["reads_failed"] += 1

    async def _request(
        self,
        admin: Admin,
        rng: random.Random,
        code: RequestCode,
        fields: dict[str, str],
        body: object,
    ) -> None:
        await call_group(
            admin.instance,
            GROUP,
            lambda: RemotingCommand(
                code=code,
                ext_fields=dict(fields),
                body=b"" if body is None else json.dumps(body).encode(),
            ),
            topic=TOPIC,
            timeout_ms=_TIMEOUT_MS,
            policy=RetryPolicy(attempts_max=rng.choice((1, 64))),
        )

    async def _set_user(self, admin: Admin, rng: random.Random) -> None:
        name, password = rng.choice(_USERS), f"secret{self._count}"
        is_known = self._desk.checker.registry.knows_user(name)
        code = RequestCode.AUTH_UPDATE_USER if is_known else RequestCode.AUTH_CREATE_USER
        body = {"username": name, "password": password, "userType": "Normal"}
        with self._desk.checker.requests.request("user", name, password) as request:
            await self._request(admin, rng, code, {"username": name}, body)
            request.is_done = True

    async def _delete_user(self, admin: Admin, rng: random.Random) -> None:
        name = rng.choice(_USERS)
        await self._request(admin, rng, RequestCode.AUTH_DELETE_USER, {"username": name}, None)
        self._desk.checker.on_user_deleted(name)

    async def _grant(self, admin: Admin, rng: random.Random) -> None:
        name, resource = rng.choice(_USERS), f"Topic:t{self._count}"
        entry = {"resource": resource, "actions": ["Pub"], "sourceIps": [], "decision": "Allow"}
        body = {
            "subject": f"User:{name}",
            "policies": [{"policyType": "Custom", "entries": [entry]}],
        }
        with self._desk.checker.requests.request("grant", name, resource) as request:
            await self._request(
                admin, rng, RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body
            )
            request.is_done = True

    async def _set_group(self, admin: Admin, rng: random.Random) -> None:
        name = rng.choice(_GROUPS)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        with self._desk.checker.requests.request("group", name, self._count) as request:
            await self._request(
                admin, rng, code, {}, {"groupName": name, "retryMaxTimes": self._count}
            )
            request.is_done = True

    async def _commit(self, admin: Admin, rng: random.Random) -> None:
        """Commit an offset for a group that has no member."""
        name = rng.choice(_GROUPS[:2])
        fields = {"consumerGroup": name, "topic": TOPIC, "queueId": "0"}
        fields["commitOffset"] = str(self._count)
        with self._desk.checker.requests.request("offset", name, TOPIC, 0, self._count) as request:
            await self._request(admin, rng, RequestCode.UPDATE_CONSUMER_OFFSET, fields, None)
            request.is_done = True

    async def _delete_group(self, admin: Admin, rng: random.Random) -> None:
        name, is_clean = rng.choice(_GROUPS), rng.random() < 0.5
        fields = {"groupName": name, "cleanOffset": "true" if is_clean else "false"}
        with self._desk.checker.requests.request("delete_group", name, is_clean) as request:
            await self._request(admin, rng, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields, None)
            request.is_done = True


class Resumer:
    """Resumes transactions that were given up, now and then one that was resumed before."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        settings = AdminSettings(timeout_ms=_TIMEOUT_MS, instance=desk.instance())
        admin = Admin(desk.name_servers, settings=settings)
        await admin.start()
        while True:
            await asyncio.sleep(rng.expovariate(1) * desk.options.transaction_interval_ms / 1000)
            copies = desk.checker.stored_in(TRANS_CHECK_MAX_TOPIC)
            if not desk.sending or not copies:
                continue
            try:
                await self._resume(admin, rng.choice(copies))
            except ClientError:
                desk.counts["reads_failed"] += 1

    async def _resume(self, admin: Admin, copy: Stored) -> None:
        message_id = offset_msg_id("10.0.1.1", 10_911, copy.position)
        with self._desk.checker.requests.request("resume", copy.queue_offset) as request:
            await call_group(
                admin.instance,
                GROUP,
                lambda: RemotingCommand(
                    code=RequestCode.RESUME_CHECK_HALF_MESSAGE, ext_fields={"msgId": message_id}
                ),
                topic=TOPIC,
                timeout_ms=_TIMEOUT_MS,
                policy=RetryPolicy(attempts_max=1),
            )
            request.is_done = True


class Discarder:
    """Discards halves as an operator does, undecided or not."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        settings = AdminSettings(timeout_ms=_TIMEOUT_MS, instance=desk.instance())
        admin = Admin(desk.name_servers, settings=settings)
        await admin.start()
        while True:
            pace = _PACE * desk.options.transaction_interval_ms / 1000
            await asyncio.sleep(rng.expovariate(1) * pace)
            halves = desk.checker.stored_in(HALF_TOPIC)
            if not desk.sending or not halves:
                continue
            await self._discard(admin, rng.choice(halves[-_NEWEST_HALVES:]))

    async def _discard(self, admin: Admin, half: Stored) -> None:
        """Request a discard. The check-back may discard the same half behind a refusal, so that
        refusals say nothing; nor does an answer without a copy, of what was discarded before."""
        message_id = offset_msg_id("10.0.1.1", 10_911, half.position)
        with self._desk.checker.requests.request("discard", half.queue_offset) as request:
            try:
                answer, _ = await call_group(
                    admin.instance,
                    GROUP,
                    lambda: RemotingCommand(
                        code=RequestCode.LEDGERMQ_DISCARD_HALF, ext_fields={"msgId": message_id}
                    ),
                    topic=TOPIC,
                    timeout_ms=_TIMEOUT_MS,
                    policy=RetryPolicy(attempts_max=1),
                )
            except ClientError:
                self._desk.counts["reads_failed"] += 1
            else:
                request.is_done = "msgId" in answer.ext_fields


class OnewayCommitter:
    """Commits offsets oneway and queries them behind each commit on the same connection.

    The query shows the commit; or the commit is lost, and never applied.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._offset = 0

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        consumer = PullConsumer(
            ONEWAY_GROUP, desk.name_servers, settings=PullConsumerSettings(timeout_ms=_TIMEOUT_MS)
        )
        await consumer.start()
        queues = await until_known(lambda: consumer.queues(TOPIC))
        while True:
            pace = _PACE * desk.options.send_interval_ms / 1000
            await asyncio.sleep(rng.expovariate(1) * pace)
            if not desk.reading:
                continue
            leader = consumer.instance.routes.leader(GROUP)
            if leader is None or leader.address is None:
                await asyncio.sleep(PAUSE_AFTER_ERROR_S)
                continue
            try:
                await self._round(consumer, leader.address, rng.choice(queues).queue_id)
            except RemotingError:
                desk.counts["reads_failed"] += 1
                consumer.instance.routes.fail(GROUP, leader.address)

    async def _round(self, consumer: PullConsumer, address: str, queue_id: int) -> None:
        desk = self._desk
        self._offset += 1
        offset = self._offset
        fields = {"consumerGroup": ONEWAY_GROUP, "topic": TOPIC, "queueId": str(queue_id)}
        connection = await consumer.instance.rpc.connect(address)
        connection.oneway(
            RemotingCommand(
                code=RequestCode.UPDATE_CONSUMER_OFFSET,
                flag=FLAG_ONEWAY,
                ext_fields={**fields, "commitOffset": str(offset)},
            )
        )
        answer = await connection.request(
            RemotingCommand(
                code=RequestCode.QUERY_CONSUMER_OFFSET,
                ext_fields={**fields, "setZeroIfNotFound": "false"},
            ),
            _TIMEOUT_MS,
        )
        if answer.code == 0 and answer.ext_fields["offset"] == str(offset):
            desk.counts["oneway_commits_seen"] += 1
        elif answer.code in {0, 22}:
            desk.checker.on_overtaken(ONEWAY_GROUP, TOPIC, queue_id, offset)
