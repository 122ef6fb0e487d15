"""Proves, on a new connection between two nodes, that both hold the group's secret.

Place in the data path: `raft.peers.connection` runs it before the first Raft frame. Pure: nonces
are arguments, frames are bytes.

    dialler                                   acceptor
    HELLO group, own name, peer's name, nonce,
          own store, own address ->
                                              <- CHALLENGE nonce, proof("acceptor"), own store
    PROOF proof("dialler") ->
                                              <- WELCOME, or REFUSED reason at any step

proof(role) is the HMAC-SHA256 under the secret over role, group, both names, both stores, the
dialler's address and both nonces, each with its length before it. The role keeps one side's proof
from being reflected as the other's, both fresh nonces keep an old one from being replayed. The
acceptor proves itself first, so a dialler never answers a stranger.

Any holder of the secret is accepted, a member or not: a node that lags behind may not know yet that
the caller is one (dissertation 4.1), and answers to `address`. `raft.peers.transport` judges which
store speaks for a name.

Invariant: after the handshake each side knows name and store of the other; a Raft frame that names
another sender ends the connection.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

import msgpack

from raft.ids import NODE_NAME_SIZE_MAX, NodeId
from raft.peers.frame_reader import frame_prefix

__all__ = [
    "HANDSHAKE_FRAME_SIZE_MAX",
    "NONCE_SIZE",
    "SECRET_SIZE_MIN",
    "Acceptor",
    "Credentials",
    "Dialler",
    "HandshakeError",
]

NONCE_SIZE = 32
SECRET_SIZE_MIN = 16
HANDSHAKE_FRAME_SIZE_MAX = 2048

_VERSION: Final = "ledgermq-raft-3"
_SIZE = struct.Struct(">I")


class HandshakeError(Exception):
    """The other side is not a member of the group, or says that this one isn't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Name and secret of this node. `secret` is shared by the group's nodes, at least
    SECRET_SIZE_MIN bytes; `address` is where the others dial it, `store_id` names its store
    (`raft.store.identity`)."""

    group: str
    node_id: NodeId
    secret: bytes
    address: str = ""
    store_id: str = ""

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_SIZE_MIN:
            raise ValueError(
                f"secret: {len(self.secret)} bytes, at least {SECRET_SIZE_MIN} are needed"
            )

    def __repr__(self) -> str:
        """Omit the secret: credentials end up in logs."""
        return (
            f"Credentials(group={self.group!r}, node_id={self.node_id!r}, store={self.store_id!r})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Claims of one side; the acceptor's address stays empty."""

    name: NodeId
    store_id: str
    nonce: bytes
    address: str = ""


class Dialler:
    """The side that opened the connection to `peer`. Pass it each frame received.

    `wanted_store_id`: the handshake with any other store ends before this side's proof, so that
    this node's existing connection with that store stays as it is; "" for any.
    """

    def __init__(
        self, identity: Credentials, peer: NodeId, nonce: bytes, *, wanted_store_id: str = ""
    ) -> None:
        assert len(nonce) == NONCE_SIZE
        self._identity = identity
        self.peer = peer
        self._wanted_store_id = wanted_store_id
        self._nonce = nonce
        self._proof_sent = False
        self.peer_store_id = ""  # claimed with the challenge, and proved by it
        self.peer_address = ""  # the dialler knew it before
        self.done = False

    def hello(self) -> bytes:
        identity = self._identity
        return _frame(
            _VERSION,
            "HELLO",
            identity.group,
            identity.node_id,
            self.peer,
            self._nonce,
            identity.store_id,
            identity.address,
        )

    def receive(self, frame: memoryview) -> bytes:
        """Process a frame and return the answer (maybe empty). Raises HandshakeError."""
        kind, *fields = _parse(frame)
        if kind == "REFUSED":
            raise HandshakeError(
                f"{self.peer} refused: {fields[0]!r:.200}" if fields else "refused"
            )
        if kind == "WELCOME" and self._proof_sent and not fields:
            self.done = True
            return b""
        if kind != "CHALLENGE" or self._proof_sent or len(fields) != 3:
            raise HandshakeError(f"{self.peer} answered {kind!r:.40} out of turn")
        nonce, proof, store_id = fields
        if not isinstance(nonce, bytes) or len(nonce) != NONCE_SIZE or not isinstance(proof, bytes):
            raise HandshakeError(f"{self.peer} sent a malformed CHALLENGE")
        if not isinstance(store_id, str):
            raise HandshakeError(f"{self.peer} sent a malformed CHALLENGE")
        own = self._identity
        caller = _Side(
            name=own.node_id, store_id=own.store_id, address=own.address, nonce=self._nonce
        )
        called = _Side(name=self.peer, store_id=store_id, nonce=nonce)
        if not hmac.compare_digest(_prove(own, "acceptor", caller, called), proof):
            raise HandshakeError(f"{self.peer} does not hold this group's secret")
        if self._wanted_store_id not in {"", store_id}:
            raise HandshakeError(f"{self.peer} speaks for another store: {store_id:.40}")
        self._proof_sent = True
        self.peer_store_id = store_id
        return _frame("PROOF", _prove(own, "dialler", caller, called))


class Acceptor:
    """The side that was called."""

    def __init__(self, identity: Credentials, nonce: bytes) -> None:
        assert len(nonce) == NONCE_SIZE
        self._identity = identity
        self._nonce = nonce
        self._caller: _Side | None = None
        self.done = False

    @property
    def peer(self) -> NodeId | None:
        """Name that the caller claimed; proved once `done`, as are the two below."""
        return None if self._caller is None else self._caller.name

    @property
    def peer_store_id(self) -> str:
        return "" if self._caller is None else self._caller.store_id

    @property
    def peer_address(self) -> str:
        return "" if self._caller is None else self._caller.address

    def receive(self, frame: memoryview) -> bytes:
        """Process a frame; return the answer. Raises HandshakeError: send `refusal` and close."""
        kind, *fields = _parse(frame)
        caller = self._caller
        if caller is None:
            return self._on_hello(kind, fields)
        if kind != "PROOF" or len(fields) != 1 or not isinstance(fields[0], bytes):
            raise HandshakeError(f"{caller.name} sent {kind!r:.40} instead of PROOF")
        if not hmac.compare_digest(self._prove("dialler", caller), fields[0]):
            raise HandshakeError(f"{caller.name} does not hold this group's secret")
        self.done = True
        return _frame("WELCOME")

    def _on_hello(self, kind: object, fields: list[object]) -> bytes:
        if kind != _VERSION or len(fields) != 7 or fields[0] != "HELLO":
            raise HandshakeError(f"no {_VERSION} HELLO but {kind!r:.40}")
        _, group, sender, receiver, nonce, store_id, address = fields
        identity = self._identity
        if group != identity.group:
            raise HandshakeError(f"group {group!r:.80} is not this node's {identity.group!r}")
        if receiver != identity.node_id:
            raise HandshakeError(f"node {receiver!r:.80} was called, this is {identity.node_id!r}")
        if not isinstance(sender, str) or not sender or sender == identity.node_id:
            raise HandshakeError(f"node {sender!r:.80} can't call {identity.node_id!r}")
        if not isinstance(nonce, bytes) or len(nonce) != NONCE_SIZE:
            raise HandshakeError(f"{sender} sent a malformed HELLO")
        if not isinstance(store_id, str) or not isinstance(address, str):
            raise HandshakeError(f"{sender} sent a malformed HELLO")
        self._caller = _Side(name=NodeId(sender), store_id=store_id, address=address, nonce=nonce)
        proof = self._prove("acceptor", self._caller)
        return _frame("CHALLENGE", self._nonce, proof, identity.store_id)

    def _prove(self, role: str, caller: _Side) -> bytes:
        own = self._identity
        called = _Side(name=own.node_id, store_id=own.store_id, nonce=self._nonce)
        return _prove(own, role, caller, called)

    @staticmethod
    def refusal(error: HandshakeError) -> bytes:
        return _frame("REFUSED", str(error)[:500])


def _prove(identity: Credentials, role: str, caller: _Side, called: _Side) -> bytes:
    texts = (
        _VERSION,
        role,
        identity.group,
        caller.name,
        caller.store_id,
        caller.address,
        called.name,
        called.store_id,
    )
    parts = [*(text.encode() for text in texts), caller.nonce, called.nonce]
    text = b"".join(_SIZE.pack(len(part)) + part for part in parts)
    return hmac.digest(identity.secret, text, hashlib.sha256)


def _frame(*fields: object) -> bytes:
    body: bytes = msgpack.packb(fields)
    assert len(body) <= HANDSHAKE_FRAME_SIZE_MAX, "names are bounded by the configuration"
    return frame_prefix((body,)) + body


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
