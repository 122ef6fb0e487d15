"""Check with brokers at start whether they can evaluate a subscription's expression.

Place in the data path: a push consumer calls `check_subscription` at its start for every
subscription that is not by tags, so that a mistake in one raises an error there instead of silently
matching nothing.

Source: RocketMQ MQClientInstance.checkClientInBroker; request CHECK_CLIENT_CONFIG (46).
"""

from __future__ import annotations

from typing import Final

import msgspec

from client.connection.answers import error_of
from client.connection.broker_call import call_group
from client.connection.heartbeat import Subscription, subscription_data
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["check_subscription"]

_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS.value,
        ResponseCode.SYSTEM_ERROR.value,  # RocketMQ: the broker filters by tags only
        ResponseCode.SUBSCRIPTION_PARSE_FAILED.value,
    }
)


async def check_subscription(
    instance: ClientInstance,
    wire_group: str,
    subscription: Subscription,
    *,
    timeout_ms: int,
    policy: RetryPolicy,
) -> None:
    """Request the check from the leader of every broker group that has the topic.

    Raises InvalidParameterError where a leader can't parse the expression, BrokerSystemError where
    one evaluates no such expressions, and any other ClientError where one could not be reached.
    """
    body = msgspec.json.encode(
        {
            "clientId": instance.client_id,
            "group": wire_group,
            "namespace": instance.namespace.name,
            "subscriptionData": subscription_data(
                subscription, instance.namespace.wrap(subscription.topic)
            ),
        }
    )
    route = await instance.routes.route(subscription.topic, timeout_ms=timeout_ms)
    for broker_name in sorted({queue.broker_name for queue in route.read_queues}):
        answer, address = await call_group(
            instance,
            broker_name,
            lambda: RemotingCommand(code=RequestCode.CHECK_CLIENT_CONFIG, body=body),
            topic=subscription.topic,
            timeout_ms=timeout_ms,
            policy=policy,
            accept=_ANSWERS,
        )
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer.code, answer.remark, address)
