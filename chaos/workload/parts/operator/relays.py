"""What brokers ask members on an operator's behalf, after members that never answered.

Place in the data path: the part `operator` does so when all others have ended. Members whose
connections end during a request leave nothing behind at the broker: the next one is queried, and
answers.

Invariants: each question to a silent member ends by itself, since its connection does; what is
expected of the last one is expected in calm times alone.

Source: RocketMQ AdminBrokerProcessor, callConsumer (GET_CONSUMER_RUNNING_INFO).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["RelayEffects"]

SILENT_MEMBERS: Final = 3
QUESTIONS: Final = 40  # to each: RocketMQ has no limit, and a broker that has one forgets them
TIMEOUT_MS: Final = 3_000
KNOWN_S: Final = 5.0
POLL_S: Final = 0.1
_NOT_SUPPORTED: Final = 3  # what a client says that has no answer; an answer all the same
_ANY: Final = frozenset({0, 1, 2, 3, 206})


class RelayEffects:
    """Queries one broker group for its members, silent ones first."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        expectations: Expectations,
        slot: Slot,
        *,
        queue: MessageQueue,
    ) -> None:
        self._context = context
        self._requests = requests
        self._expectations = expectations
        self._slot = slot
        self._queue = queue
        self._group = f"operator-relays-{queue.broker_name}"

    async def show(self) -> None:
        """Query silent members in vain, and then one that answers."""
        began_ns = time.monotonic_ns()
        for _ in range(SILENT_MEMBERS):
            await self._request_in_vain()
        member = self._member()
        await member.start()
        try:
            if await self._is_known(member):
                code = await self._request(member)
                if code is not None:
                    self._expectations.hold(
                        "question to a member, after others that left without an answer",
                        expected="answered",
                        answered="answered" if code in {0, _NOT_SUPPORTED} else code,
                        queue=self._queue,
                        calm_since=began_ns,
                    )
        finally:
            await member.stop()

    async def _request_in_vain(self) -> None:
        member = self._member()
        received: set[int] = set()
        member.instance.listen(
            RequestCode.GET_CONSUMER_RUNNING_INFO, lambda _, command: received.add(command.opaque)
        )
        await member.start()
        gone = False
        try:
            if not await self._is_known(member):
                return
            async with asyncio.TaskGroup() as tasks:
                questions = [tasks.create_task(self._request(member)) for _ in range(QUESTIONS)]
                end_s = asyncio.get_running_loop().time() + KNOWN_S
                while len(received) < QUESTIONS and asyncio.get_running_loop().time() < end_s:
                    if all(question.done() for question in questions):
                        break
                    await asyncio.sleep(POLL_S)
                gone = True
                await member.crash()
        finally:
            if not gone:
                await member.crash()

    def _member(self) -> PullConsumer:
        return PullConsumer(
            self._group,
            self._context.name_servers,
            self._slot.dial,
            settings=PullConsumerSettings(
                timeout_ms=TIMEOUT_MS, instance=self._slot.instance_settings()
            ),
        )

    async def _is_known(self, member: PullConsumer) -> bool:
        """Wait until the leader knows the member; False where it does not, in time."""
        with contextlib.suppress(ClientError):
            await member.queues(self._queue.topic)
        command = RemotingCommand(
            code=RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            ext_fields={"consumerGroup": self._group},
        )
        end_s = asyncio.get_running_loop().time() + KNOWN_S
        while asyncio.get_running_loop().time() < end_s:
            with contextlib.suppress(ClientError):
                answer, address = await self._at_leader(command)
                if answer.code == 0 and member.client_id in json_of(answer, address).get(
                    "consumerIdList", ()
                ):
                    return True
            await asyncio.sleep(POLL_S)
        return False

    async def _request(self, member: PullConsumer) -> int | None:
        """Return the answer's code; None without one."""
        command = RemotingCommand(
            code=RequestCode.GET_CONSUMER_RUNNING_INFO,
            ext_fields={"consumerGroup": self._group, "clientId": member.client_id},
        )
        try:
            answer, _ = await self._at_leader(command)
        except ClientError:
            return None
        return answer.code

    async def _at_leader(self, command: RemotingCommand) -> tuple[RemotingCommand, str]:
        return await request_leader(
            self._requests.instance,
            self._queue.broker_name,
            lambda: command,
            timeout_ms=TIMEOUT_MS,
            accept=_ANY,
        )
