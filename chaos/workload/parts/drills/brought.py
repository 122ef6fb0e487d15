"""What messages of drills bring beside their contents: properties that clients set for one another,
and a key that comes again and again.

Place in the data path: the runners of `drills` send them; where a message comes again, in retries
and dead letters, it has to bring them still: a request is answered at whichever attempt, a trace
found by its key. What applications set is in the digest that rule A18 compares. A key of many
messages, as a customer's, has a chain through all that an index was saved, sealed and opened again
in between; the other keys are those of some neighbours alone. Pure.

Source: RocketMQ MessageConst; RequestResponse (MessageUtil.createReplyMessage);
AbstractSendMessageProcessor.consumerSendMsgBack (setWaitStoreMsgOK).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from chaos.workload.parts.common.drill import Stored
from client.message import Message
from remoting.records.property_names import PropertyName

__all__ = ["bring", "brought", "brought_by"]

_OTHERS: Final = ("BUYER_ID", "INSTANCE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG")
_RETAINED: Final = (
    *(PropertyName.UNIQ_KEY, PropertyName.WAIT),
    *(PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL),
    *_OTHERS,
)
_ADDED: Final = (PropertyName.MSG_REGION, PropertyName.TRACE_ON, PropertyName.CLUSTER)  # by brokers
_SHARE: Final = 0.5  # of each kind
_OFTEN: Final = ("0", "gr\u00f6\u00dfe", "\u8ba2\u5355")


def bring(message: Message, rng: random.Random, *, sender: str) -> None:
    """Have a message bring some of it; of those with keys, half have one of their sender's few."""
    message.properties = {**message.properties, **_draw(rng)}
    if message.keys and rng.random() < _SHARE:
        message.keys = (*message.keys, f"often-{sender}-{rng.choice(_OFTEN)}")


def _draw(rng: random.Random) -> dict[str, str]:
    """Draw what one message brings: what a request has, and some of the others."""
    properties = {}
    if rng.random() < _SHARE:
        properties = {
            PropertyName.CORRELATION_ID: f"{rng.getrandbits(64):x}",
            PropertyName.REPLY_TO_CLIENT: f"nobody@{rng.randrange(1_000)}",
            PropertyName.TTL: "3000",
        }
    others = {name: "true" for name in (*_OTHERS, PropertyName.WAIT) if rng.random() < _SHARE}
    return properties | others


def brought(properties: Mapping[str, str]) -> str:
    """Return as text what a record brings, and whether it has what brokers add."""
    retained = [f"{name}={properties[name]}" for name in _RETAINED if name in properties]
    added = sum(name in properties for name in _ADDED)
    return f"[{' '.join(retained)} and {added} of {len(_ADDED)}]"


def brought_by(one: Stored, *, is_sent_back: bool = False) -> str:
    """Return what a copy of a message has to bring. One that a consumer sent back says that its
    sender does not wait, whatever the message said."""
    pairs = (text.partition("\x01")[::2] for text in one.command.ext_fields["i"].split("\x02"))
    changed = {PropertyName.WAIT: "false"} if is_sent_back else {}
    return brought(dict(pairs) | changed | dict.fromkeys(_ADDED, ""))
