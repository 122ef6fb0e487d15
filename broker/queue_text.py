"""A queue as the name of a JSON field, and as a JSON value: RocketMQ's MessageQueue.

fastjson writes whole objects as names, which is no JSON; both generations of Java clients read a
string that holds the object instead.
"""

from __future__ import annotations

import json

__all__ = ["queue_text", "queue_value"]


def queue_value(broker: str, topic: str, queue_id: int) -> dict[str, object]:
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}


def queue_text(broker: str, topic: str, queue_id: int) -> str:
    return json.dumps(queue_value(broker, topic, queue_id), separators=(",", ":"))
