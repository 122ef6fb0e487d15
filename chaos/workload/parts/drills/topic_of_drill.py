"""The topic of a drill: made by the drill itself, in the group whose leader it asks.

Place in the data path: drills that need a topic that nobody else has begin with `make_topic`.

Source: RocketMQ UPDATE_AND_CREATE_TOPIC.
"""

from __future__ import annotations

from chaos.workload.parts.common.drill import Drill
from chaos.workload.parts.common.leader_requests import create_topic_command
from remoting.protocol.codes import RequestCode

__all__ = ["make_topic"]


async def make_topic(drill: Drill, topic: str, *, queues: int = 1) -> None:
    """Make a topic that may be read and written. Raises Unsure, EndedError."""
    command = create_topic_command(topic, queues=queues, perm=6)
    await drill.request(
        f"make topic {topic}",
        RequestCode(command.code),
        command.ext_fields,
        expected="0",
        changes=True,
    )
