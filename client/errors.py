"""The errors of the client, and what a caller may conclude from each.

Place in the data path: raised by producers, consumers and the route table;
`client.connection.answers` makes them from a broker's response codes, `client.connection.retry`
decides by their attributes.

Every error answers two questions, as class attributes:
- `retriable`: may the same request, sent again (here or to another node), succeed?
- `definite`: is it certain that the request had no effect? A timeout and a lost connection are
  never definite: the broker may have stored the message without its answer arriving.

Invariant: the error that a producer finally raises is definite only where *every* attempt was: one
attempt without an answer makes the whole send unknown (`OutcomeUnknownError`).
"""

from __future__ import annotations

__all__ = [
    "BrokerBusyError",
    "BrokerRefusedError",
    "BrokerSystemError",
    "BrokerUnreachableError",
    "ClientClosedError",
    "ClientError",
    "ContraryDecisionError",
    "DeadlineError",
    "GroupNotExistError",
    "IllegalMessageError",
    "InvalidParameterError",
    "MalformedAnswerError",
    "MaybeStoredError",
    "NameServerError",
    "NoMessageError",
    "NoPermissionError",
    "NoRouteError",
    "NotLeaderError",
    "NotRecalledError",
    "OffsetNotFoundError",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "QueueNotOwnedError",
    "RequestNotSupportedError",
    "SubscriptionNotReadyError",
    "TopicNotExistError",
    "UnansweredError",
    "UnencodableRequestError",
]


class ClientError(Exception):
    """Base of all errors of this package."""

    retriable = False
    definite = True


class ClientClosedError(ClientError):
    """The client was not started, or was stopped before the request left."""


class NameServerError(ClientError):
    """No name server gave a usable answer; no broker received the request."""

    retriable = True


class NoRouteError(ClientError):
    """The name servers know no queue of the topic that this request could use."""

    retriable = True


class BrokerUnreachableError(ClientError):
    """No connection could be opened: the request was not sent."""

    retriable = True


class UnansweredError(ClientError):
    """The request was sent, and no answer came: timeout or lost connection."""

    retriable = True
    definite = False


class UnencodableRequestError(ClientError):
    """The wire has no form for the request (text that is not UTF-8, a number beyond its field, a
    frame that would be too large): it was not sent."""


class QueueNotOwnedError(ClientError):
    """This member of the group does not own the queue: not yet, no more, or not at all.

    A rebalance may give it the queue.
    """

    retriable = True


class OffsetOutOfRangeError(ClientError):
    """The queue begins behind this offset or ends before it; nothing was changed."""


class MalformedAnswerError(ClientError):
    """The broker's answer can't be decoded; whether it carried the request out is unknown."""

    definite = False


class BrokerRefusedError(ClientError):
    """The broker answered with an error. `code` and `remark` are the broker's.

    This class itself stands for codes without a known meaning: what the broker did is unknown.
    """

    definite = False

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"broker {address} answered code {code}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark
        self.address = address


class BrokerSystemError(BrokerRefusedError):
    """Code 1: something failed inside the broker, perhaps after it had stored the message."""

    retriable = True


class BrokerBusyError(BrokerRefusedError):
    """Code 2 or 215: flow control; nothing was stored."""

    retriable = True
    definite = True


class RequestNotSupportedError(BrokerRefusedError):
    """Code 3: the broker does not know this request."""

    definite = True


class IllegalMessageError(BrokerRefusedError):
    """Code 13: the message breaks a limit of the broker (but see MaybeStoredError)."""

    definite = True


class MaybeStoredError(BrokerRefusedError):
    """Code 13 with a remark that begins with `outcome unknown`.

    The message's UNIQ_KEY is older than the broker's memory of keys. It was not stored now, since
    an earlier attempt stored it, or may have; sending it again would end the same way.
    """


class NotLeaderError(BrokerRefusedError):
    """Code 14 or 11: this node takes no writes now. `leader` is the address it names, or None."""

    retriable = True
    definite = True

    def __init__(self, code: int, remark: str | None, address: str, leader: str | None) -> None:
        super().__init__(code, remark, address)
        self.leader = leader


class NoPermissionError(BrokerRefusedError):
    """Code 16: topic or group forbids the request, or the account may not make it."""

    definite = True


class TopicNotExistError(BrokerRefusedError):
    """Code 17: the broker has no such topic and may not create it."""

    retriable = True
    definite = True


class OffsetNotFoundError(BrokerRefusedError):
    """Code 22: nothing is stored for the requested key."""

    definite = True


class NoMessageError(BrokerRefusedError):
    """Code 208: the queue has no such offset, or the popped message is held no more."""

    definite = True


class SubscriptionNotReadyError(BrokerRefusedError):
    """Code 24 or 25: the broker has no subscription, or an older one; a heartbeat repairs that."""

    retriable = True
    definite = True


class GroupNotExistError(BrokerRefusedError):
    """Code 26: the broker does not know the group yet; a heartbeat repairs that."""

    retriable = True
    definite = True


class InvalidParameterError(BrokerRefusedError):
    """Code 29: a field is out of its range, e.g. the queue id. Code 23: an invalid expression."""

    definite = True


class ContraryDecisionError(BrokerRefusedError):
    """Code 604 with a remark that names the decision, or the discard, that won before.

    Definite whatever happened to earlier attempts: had one of them been carried out, the broker
    would have answered that it is done already.
    """

    definite = True


class NotRecalledError(BrokerRefusedError):
    """Code 604 with a remark on a recall: the message was delivered, or is about to be.

    Definite for its own attempt only: an earlier one without an answer may have recalled the
    message, which nobody can tell from a delivered one once its time has come.
    """

    definite = True


class DeadlineError(ClientError):
    """The deadline passed before any attempt could be carried out; `last` says why."""

    retriable = True

    def __init__(self, text: str, last: ClientError | None) -> None:
        super().__init__(text if last is None else f"{text}; last: {last}")
        self.last = last


class OutcomeUnknownError(ClientError):
    """At least one attempt had no clear answer: whether the request was carried out is unknown.

    `last` is the error of the last attempt; `attempts` counts them. Sending the same message object
    again is safe: it keeps its UNIQ_KEY, by which ledgermq's brokers store it once.
    """

    retriable = True
    definite = False

    def __init__(self, text: str, last: ClientError, attempts: int) -> None:
        super().__init__(f"{text} after {attempts} attempts; last: {last}")
        self.last = last
        self.attempts = attempts
