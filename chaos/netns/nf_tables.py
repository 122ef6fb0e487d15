"""The kernel's packet filter, driven over netlink: no `nft` program is needed.

Place in the data path: `chaos.netns.network` opens the socket in the switch's namespace and sends
what `installed` and `replaced` return. Pure but for `send`.

A request is a batch, which the kernel carries out as a whole or not at all: rules never change in
the middle of one another.

    nlmsghdr   length u32 . type u16 . flags u16 . sequence u32 . port u32      (this host's order)
    nfgenmsg   family u8 . version u8 . resource u16                            (network order)
    attribute  length u16 . type u16 . value, padded to 4 bytes; numbers in values are big-endian

Invariants: all rules stand in one table, one chain for each switch port; `replaced` removes every
old rule in the batch that adds the new ones.

Source: linux/netfilter/nf_tables.h, nfnetlink.h; nft(8) with `--debug=netlink`.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from chaos.netns.rules import SHARE_SCALE, Action, PacketRule, in_order

__all__ = ["NETLINK_NETFILTER", "TABLE", "PacketFilterError", "installed", "replaced", "send"]

NETLINK_NETFILTER: Final = 12
TABLE: Final = "ledgermq"
ANSWER_TIMEOUT_S: Final = 5.0
_ANSWER_SIZE_MAX: Final = 65_536

_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
assert (_HEADER.size, _ATTRIBUTE.size) == (16, 4)
_ERROR_TYPE: Final = 2  # NLMSG_ERROR, also of an acknowledgement
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_NESTED: Final = 0x8000
_NETDEV: Final = 5  # NFPROTO_NETDEV
_SUBSYSTEM: Final = 10  # NFNL_SUBSYS_NFTABLES
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE, _DELETE_RULE = 0, 3, 6, 8

_VERDICT_REGISTER, _REGISTER = 0, 1
_META_PROTOCOL, _META_L4PROTO = 1, 16
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_EQUAL, _LESS = 0, 2
_DROP: Final = 0  # NF_DROP
_IPV4: Final = 0x0800
_SYN, _SYN_ACK = 0x02, 0x12


class PacketFilterError(Exception):
    """The kernel refused the rules; the text says which request and why."""


def installed(ports: Sequence[str]) -> list[bytes]:
    """Return the messages that make the table and the chains of these switch ports, empty."""
    messages = [_message(_NEW_TABLE, _CREATE, _text(1, TABLE))]
    for port in ports:
        hook = _nested(4, _number(1, 0) + _number(2, 0) + _text(3, port))  # ingress, priority 0
        chain = _text(1, TABLE) + _text(3, port) + hook + _text(7, "filter")
        messages.append(_message(_NEW_CHAIN, _CREATE, chain))
    return messages


def replaced(rules: Iterable[PacketRule], *, delay_index: int) -> list[bytes]:
    """Return the messages that put these rules in place of all others.

    `delay_index`: interface index of the delay line's device.
    """
    messages = [_message(_DELETE_RULE, 0, _text(1, TABLE))]
    for rule in in_order(rules):
        expressions = _nested(4, b"".join(_nested(1, each) for each in _rule(rule, delay_index)))
        attributes = _text(1, TABLE) + _text(2, rule.flow.port) + expressions
        messages.append(_message(_NEW_RULE, _CREATE | _APPEND, attributes))
    return messages


def send(connection: socket.socket, messages: Sequence[bytes]) -> None:
    """Let the kernel carry the messages out as one. Raises PacketFilterError, OSError.

    Blocks for the time that the kernel takes. After TimeoutError the outcome is unknown.
    """
    connection.settimeout(ANSWER_TIMEOUT_S)
    connection.sendall(_batch(messages))
    last = len(messages)
    while True:
        answer = connection.recv(_ANSWER_SIZE_MAX)
        while len(answer) >= _HEADER.size:
            length, kind, _, sequence, _ = _HEADER.unpack_from(answer)
            if kind == _ERROR_TYPE:
                (error,) = struct.unpack_from("=i", answer, _HEADER.size)
                if error:
                    why = os.strerror(-error)
                    raise PacketFilterError(f"request {sequence} of {last} was refused: {why}")
                if sequence == last:
                    return
            answer = answer[_aligned(length) :]


def _batch(messages: Sequence[bytes]) -> bytes:
    """Return the batch: numbered messages, of which the kernel acknowledges the last."""
    begin = _framed(_BATCH_BEGIN, _REQUEST, 0, struct.pack(">BBH", 0, 0, _SUBSYSTEM))
    end = _framed(_BATCH_END, _REQUEST, len(messages) + 1, struct.pack(">BBH", 0, 0, _SUBSYSTEM))
    numbered = []
    for sequence, message in enumerate(messages, start=1):
        kind, flags = struct.unpack_from("=HH", message)
        flags |= _ACK if sequence == len(messages) else 0
        numbered.append(_framed(kind, flags, sequence, message[4:]))
    return begin + b"".join(numbered) + end


def _message(kind: int, flags: int, attributes: bytes) -> bytes:
    """Return type, flags and body of a message; `_batch` numbers and frames it."""
    head = struct.pack("=HH", _SUBSYSTEM << 8 | kind, _REQUEST | flags)
    return head + struct.pack(">BBH", _NETDEV, 0, 0) + attributes


def _framed(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def _rule(rule: PacketRule, delay_index: int) -> list[bytes]:
    """Return the expressions of a rule."""
    expressions = [
        _meta(_META_PROTOCOL),
        _compare(_EQUAL, struct.pack(">H", _IPV4)),
        _payload(_NETWORK_HEADER, 12, 4),
        _compare(_EQUAL, ipaddress.IPv4Address(rule.flow.source).packed),
        _payload(_NETWORK_HEADER, 16, 4),
        _compare(_EQUAL, ipaddress.IPv4Address(rule.flow.target).packed),
    ]
    match rule.action:
        case Action.DROP:
            return [*expressions, _drop()]
        case Action.DROP_SYN:
            return [*expressions, *_first_of_connection(), _drop()]
        case Action.LOSE:
            # The kernel compares bytes, the most significant first.
            number = _expression(
                "numgen", _number(1, _REGISTER), _number(2, SHARE_SCALE), _number(3, 1)
            )
            to_network = _expression(
                "byteorder",
                _number(1, _REGISTER),
                _number(2, _REGISTER),
                _number(3, 1),
                _number(4, 4),
                _number(5, 4),
            )
            less = _compare(_LESS, struct.pack(">I", rule.share))
            return [*expressions, number, to_network, less, _drop()]
        case Action.DELAY:
            index = _nested(2, _attribute(1, struct.pack("=I", delay_index)))
            device = _expression("immediate", _number(1, _REGISTER), index)
            return [*expressions, device, _expression("fwd", _number(1, _REGISTER))]


def _first_of_connection() -> list[bytes]:
    """Match TCP packets with SYN and without ACK."""
    mask = _nested(4, _attribute(1, bytes([_SYN_ACK])))
    xor = _nested(5, _attribute(1, bytes([0])))
    masked = _expression(
        "bitwise", _number(1, _REGISTER), _number(2, _REGISTER), _number(3, 1), mask, xor
    )
    return [
        _meta(_META_L4PROTO),
        _compare(_EQUAL, bytes([socket.IPPROTO_TCP])),
        _payload(_TRANSPORT_HEADER, 13, 1),
        masked,
        _compare(_EQUAL, bytes([_SYN])),
    ]


def _meta(key: int) -> bytes:
    return _expression("meta", _number(1, _REGISTER), _number(2, key))


def _payload(base: int, offset: int, size: int) -> bytes:
    return _expression(
        "payload", _number(1, _REGISTER), _number(2, base), _number(3, offset), _number(4, size)
    )


def _compare(operator: int, value: bytes) -> bytes:
    data = _nested(3, _attribute(1, value))
    return _expression("cmp", _number(1, _REGISTER), _number(2, operator), data)


def _drop() -> bytes:
    verdict = _nested(2, _nested(2, _number(1, _DROP)))
    return _expression("immediate", _number(1, _VERDICT_REGISTER), verdict)


def _expression(name: str, *attributes: bytes) -> bytes:
    return _text(1, name) + _nested(2, b"".join(attributes))


def _attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def _nested(kind: int, attributes: bytes) -> bytes:
    return _attribute(kind | _NESTED, attributes)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack(">I", value))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _aligned(length: int) -> int:
    return length + 3 & ~3
