"""The proof, on a new connection between two nodes, that both hold the group's secret.

Place in the data path: `raft.transport` runs it before the first Raft frame. Pure: nonces are
arguments, frames are bytes.

    dialler                                   acceptor
    HELLO group, own name, peer's name, nonce ->
                                              <- CHALLENGE nonce, proof("acceptor")
    PROOF proof("dialler") ->
                                              <- WELCOME, or REFUSED reason at any step

proof(role) is the HMAC-SHA256 under the secret over role, group, both names and both nonces, each
with its length before it. The role keeps one side's proof from being reflected as the other's,
both fresh nonces keep an old one from being replayed. The acceptor proves itself first, so a
dialler never answers a stranger.

Invariant: after the handshake each side knows the name of the other; a Raft frame that names
another sender ends the connection.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

import msgpack

from raft.messages import NodeId
from raft.wire import NODE_NAME_SIZE_MAX

__all__ = [
    "HANDSHAKE_FRAME_SIZE_MAX",
    "NONCE_SIZE",
    "SECRET_SIZE_MIN",
    "Acceptor",
    "Dialler",
    "HandshakeError",
    "Identity",
]

NONCE_SIZE = 32
SECRET_SIZE_MIN = 16
HANDSHAKE_FRAME_SIZE_MAX = 2048

_VERSION: Final = "ledgermq-raft-1"
_SIZE = struct.Struct(">I")


class HandshakeError(Exception):
    """The other side is not a member of the group, or says that this one isn't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this node is. `secret` is shared by the group's nodes, at least SECRET_SIZE_MIN bytes."""

    group: str
    node_id: NodeId
    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_SIZE_MIN:
            raise ValueError(
                f"secret: {len(self.secret)} bytes, at least {SECRET_SIZE_MIN} are needed"
            )

    def __repr__(self) -> str:
        """Without the secret: identities end up in logs."""
        return f"Identity(group={self.group!r}, node_id={self.node_id!r})"


class Dialler:
    """The side that opened the connection to `peer`. Feed it each frame received."""

    def __init__(self, identity: Identity, peer: NodeId, nonce: bytes) -> None:
        assert len(nonce) == NONCE_SIZE
        self._identity = identity
        self.peer = peer
        self._nonce = nonce
        self._proof_sent = False
        self.done = False

    def hello(self) -> bytes:
        identity = self._identity
        return _frame(_VERSION, "HELLO", identity.group, identity.node_id, self.peer, self._nonce)

    def receive(self, frame: memoryview) -> bytes:
        """What to send in answer (maybe nothing). Raises HandshakeError."""
        kind, *fields = _parse(frame)
        if kind == "REFUSED":
            raise HandshakeError(
                f"{self.peer} refused: {fields[0]!r:.200}" if fields else "refused"
            )
        if kind == "WELCOME" and self._proof_sent and not fields:
            self.done = True
            return b""
        if kind != "CHALLENGE" or self._proof_sent or len(fields) != 2:
            raise HandshakeError(f"{self.peer} answered {kind!r:.40} out of turn")
        nonce, proof = fields
        if not isinstance(nonce, bytes) or len(nonce) != NONCE_SIZE or not isinstance(proof, bytes):
            raise HandshakeError(f"{self.peer} sent a malformed CHALLENGE")
        names = (self._identity.node_id, self.peer)
        wanted = _prove(self._identity, "acceptor", *names, self._nonce, nonce)
        if not hmac.compare_digest(wanted, proof):
            raise HandshakeError(f"{self.peer} does not hold this group's secret")
        self._proof_sent = True
        return _frame("PROOF", _prove(self._identity, "dialler", *names, self._nonce, nonce))


class Acceptor:
    """The side that was called. `members` are the names it accepts."""

    def __init__(self, identity: Identity, members: frozenset[NodeId], nonce: bytes) -> None:
        assert len(nonce) == NONCE_SIZE
        self._identity = identity
        self._members = members
        self._nonce = nonce
        self._peer_nonce: bytes | None = None
        self.peer: NodeId | None = None  # claimed; proved once `done`
        self.done = False

    def receive(self, frame: memoryview) -> bytes:
        """What to send in answer. Raises HandshakeError; then send `refusal` and close."""
        kind, *fields = _parse(frame)
        if self._peer_nonce is None:
            return self._on_hello(kind, fields)
        if kind != "PROOF" or len(fields) != 1 or not isinstance(fields[0], bytes):
            raise HandshakeError(f"{self.peer} sent {kind!r:.40} instead of PROOF")
        assert self.peer is not None
        names = (self.peer, self._identity.node_id)
        wanted = _prove(self._identity, "dialler", *names, self._peer_nonce, self._nonce)
        if not hmac.compare_digest(wanted, fields[0]):
            raise HandshakeError(f"{self.peer} does not hold this group's secret")
        self.done = True
        return _frame("WELCOME")

    def _on_hello(self, kind: object, fields: list[object]) -> bytes:
        if kind != _VERSION or len(fields) != 5 or fields[0] != "HELLO":
            raise HandshakeError(f"no {_VERSION} HELLO but {kind!r:.40}")
        _, group, sender, receiver, nonce = fields
        identity = self._identity
        if group != identity.group:
            raise HandshakeError(f"group {group!r:.80} is not this node's {identity.group!r}")
        if receiver != identity.node_id:
            raise HandshakeError(f"node {receiver!r:.80} was called, this is {identity.node_id!r}")
        if not isinstance(sender, str) or sender not in self._members:
            raise HandshakeError(f"node {sender!r:.80} is not a member of {identity.group!r}")
        if not isinstance(nonce, bytes) or len(nonce) != NONCE_SIZE:
            raise HandshakeError(f"{sender} sent a malformed HELLO")
        self.peer = NodeId(sender)
        self._peer_nonce = nonce
        proof = _prove(identity, "acceptor", self.peer, identity.node_id, nonce, self._nonce)
        return _frame("CHALLENGE", self._nonce, proof)

    @staticmethod
    def refusal(error: HandshakeError) -> bytes:
        return _frame("REFUSED", str(error)[:500])


def _prove(
    identity: Identity,
    role: str,
    dialler: str,
    acceptor: str,
    *nonces: bytes,
) -> bytes:
    parts = [part.encode() for part in (_VERSION, role, identity.group, dialler, acceptor)]
    parts += nonces
    text = b"".join(_SIZE.pack(len(part)) + part for part in parts)
    return hmac.digest(identity.secret, text, hashlib.sha256)


def _frame(*fields: object) -> bytes:
    body: bytes = msgpack.packb(fields)
    assert len(body) <= HANDSHAKE_FRAME_SIZE_MAX, "names are bounded by the configuration"
    return _SIZE.pack(len(body)) + body


def _parse(frame: memoryview) -> list[object]:
    try:
        fields = msgpack.unpackb(
            frame,
            raw=False,
            max_array_len=8,
            max_map_len=0,
            max_ext_len=0,
            max_bin_len=64,
            max_str_len=max(600, NODE_NAME_SIZE_MAX),
        )
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise HandshakeError(f"no handshake: {type(error).__name__}: {error}") from error
    if type(fields) is not list or not fields:
        raise HandshakeError("no handshake: not an array")
    return fields
