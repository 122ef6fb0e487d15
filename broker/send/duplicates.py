"""Detection of messages that are stored already, and where.

Place in the data path: the send processor checks before it proposes; the answer of a retry names
the first place (promise G2). Windows hold hashes of keys, so a place is named only after the record
itself has shown its key.

A half whose transaction was rolled back, or discarded, is no place to name: its sender would run
its local transaction once more and commit what can't be committed, of which RocketMQ's clients,
whose decisions are oneway, hear nothing. They roll back themselves where a half is answered with a
status but SEND_OK, and applications send the same message again.

Halves and plain messages share one scope: a half becomes a message of its key when it is committed.
A key of the other kind is refused, since the two are no attempts of one send; so is the key of a
message in another topic, with another body, tag or delay, or of one that was recalled or deleted
with its topic, whose place would pass for that of a message which is stored nowhere.

What is behind the window is refused with 13 and `outcome unknown`: it is stored, or may be, so the
refusal must not pass for "surely not stored" (promise G7). RocketMQ's Java clients raise 13 at
once; after 1, 2 or 14 they would send the message to another group, which knows nothing of the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.entry.record import PendingRecord
from broker.entry.topics import HALF_TOPIC, TIMER_TOPIC
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError
from broker.request.stored_topic import topic_of
from broker.state.dedupe import DedupeWindow, Verdict, hash_of
from remoting.protocol.codes import ResponseCode
from remoting.records.message import decode_record
from remoting.records.properties import decode_properties
from remoting.records.property_names import DELAYING, PropertyName

__all__ = [
    "Place",
    "are_surely_new",
    "is_surely_new",
    "maybe_stored",
    "require_open_half",
    "stored_place",
]

_OF_A_SEND: Final = (
    PropertyName.TAGS,
    PropertyName.KEYS,
    PropertyName.SHARDING_KEY,
    PropertyName.CORRELATION_ID,
    *DELAYING,
)
"""Properties that each attempt of one send has alike."""

_ENDED: Final[Mapping[str, str]] = {"rollback": "rolled back", "discard": "discarded"}


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a message in the log and in its queue, present or future."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int


def are_surely_new(
    replica: Replica, leadership: Leadership, keys: list[str], *, born_ms: int
) -> bool:
    """Return whether no key of a batch is stored, expired or in flight; False may be wrong."""
    state = replica.state
    born_ms += replica.clocks.lead_ms()
    return (
        leadership.proposer.has_none_in_flight(keys)
        and state.messages.knows_none(keys, born_ms=born_ms)
        and state.half_keys.knows_none(keys, born_ms=born_ms)
    )


def is_surely_new(replica: Replica, leadership: Leadership, key: str, *, born_ms: int) -> bool:
    """Return whether one key is neither stored, nor expired, nor in flight."""
    state = replica.state
    born_ms += replica.clocks.lead_ms()
    hashed = hash_of(key)
    return (
        leadership.proposer.in_flight_key(key) is None
        and state.messages.is_new(hashed, born_ms=born_ms)
        and state.half_keys.is_new(hashed, born_ms=born_ms)
    )


def stored_place(replica: Replica, record: PendingRecord, topic: str) -> Place | None:
    """Return the place of an earlier attempt to store this message, which has a key, in `topic`;
    None where there was none.

    Raises RefusedError where one is known, or possible, but has no place to name.
    """
    key = record.dedupe_key
    assert key is not None
    state = replica.state
    is_half = record.topic == HALF_TOPIC
    own, other = state.messages, state.half_keys
    if is_half:
        own, other = other, own
    # Producers have the true time at best, stamps that of the group, which may be ahead of it.
    born_ms, now_ms = record.template.born_ms + replica.clocks.lead_ms(), replica.clock_ms()
    match own.judge(key, born_ms=born_ms, now_ms=now_ms):
        case Verdict.STORED:
            return _place_of(replica, own, record, topic)
        case Verdict.EXPIRED:
            raise _expired(own, key)
        case Verdict.NEW if other.judge(key, born_ms=born_ms, now_ms=now_ms) is not Verdict.NEW:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"UNIQ_KEY {key} is that of a "
                f"{'message that is stored' if is_half else 'transaction'} already",
            )
        case Verdict.NEW:
            return None


def require_open_half(replica: Replica, leadership: Leadership, key: str, half: Place) -> None:
    """Raise RefusedError where the transaction of this stored half has ended, but by a commit, or
    is about to end."""
    offset = half.queue_offset
    ended = _ENDED.get(replica.state.halves.decision(offset) or "")
    if ended is not None:
        # Its half is stored, so that this is no "surely not stored" (promise G7).
        raise maybe_stored(
            f"the transaction of UNIQ_KEY {key} was {ended} already: send the message with another"
        )
    if leadership.proposer.in_flight_decision(offset) is not None:
        raise maybe_stored(f"the transaction of UNIQ_KEY {key} is about to end")


def _place_of(replica: Replica, window: DedupeWindow, again: PendingRecord, topic: str) -> Place:
    key = again.dedupe_key
    assert key is not None
    position = window.find(key)
    assert position is not None
    try:
        record = decode_record(replica.read_record(position), check_crc=False)
    except LookupError as error:  # retention took it: stored once, but nowhere to be shown
        raise _expired(window, key) from error
    properties = record.property_map()
    own_key = properties.get(PropertyName.UNIQ_KEY)
    # A message of a batch that has no key of its own got the batch's and its number.
    if own_key != key and not (own_key is None and "#" in key):
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"UNIQ_KEY {key} can't be told from {own_key}: send the message with another one",
        )
    stored_topic = topic_of(record)
    if stored_topic != topic:
        # No attempt of this send: RocketMQ's clients leave the key on a message that they have
        # received, and applications send it on.
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"UNIQ_KEY {key} is that of a message in topic {stored_topic} already: send this one "
            "with another",
        )
    if record.body != again.body:
        # Applications change a message that they have sent, and send it again: Java leaves the key
        # on it. A client that compresses may write a retry in other bytes, so that the message may
        # be stored.
        raise maybe_stored(f"UNIQ_KEY {key} is that of a message with another body already")
    sent = decode_properties(again.properties)
    for name in _OF_A_SEND:  # others an agent may set at each attempt, or the broker has added
        if properties.get(name) != sent.get(name):
            raise maybe_stored(f"UNIQ_KEY {key} is that of a message with another {name} already")
    if replica.state.deletions.took(topic, position):
        raise maybe_stored(f"the message of UNIQ_KEY {key} was deleted with its topic")
    if record.topic == TIMER_TOPIC and replica.state.timers.get(record.queue_offset) is None:
        out_ms = int(properties.get(PropertyName.TIMER_OUT_MS, "0"))
        if replica.clock_ms() < out_ms:  # else it was delivered
            raise maybe_stored(f"the message of UNIQ_KEY {key} was recalled")
    return Place(record.topic, record.queue_id, record.queue_offset, position)


def _expired(window: DedupeWindow, key: str) -> RefusedError:
    return maybe_stored(
        f"UNIQ_KEY {key} is older than the dedupe window of {window.window_ms} ms or "
        f"{window.keys_max} keys: not stored again, since it may be stored already"
    )


def maybe_stored(why: str) -> RefusedError:
    """Build the refusal of a message that is stored already, or may be, at an unknown place."""
    return RefusedError(ResponseCode.MESSAGE_ILLEGAL, f"outcome unknown: {why}")
