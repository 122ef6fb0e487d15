"""The signature of RocketMQ's ACL over one request. Pure.

Place in the data path: a client signs its requests, `broker.access` computes the same and compares.
Signed are the values of every ext field but the signature, joined in the order of their names, then
the body; the code and the flag are not. There is no nonce: whoever can read a signed request can
replay it, so ACL without TLS proves who wrote a request, not who sends it.

Source: RocketMQ AclUtils.combineRequestContent, AclSigner, AclClientRPCHook.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Collection, Mapping
from typing import Final

from remoting.errors import UnencodableError
from remoting.protocol.command import RemotingCommand

__all__ = [
    "ACCESS_KEY_FIELD",
    "SECURITY_TOKEN_FIELD",
    "SIGNATURE_FIELD",
    "Signer",
    "signature_of",
    "signatures_equal",
]

ACCESS_KEY_FIELD: Final = "AccessKey"
SIGNATURE_FIELD: Final = "Signature"
SECURITY_TOKEN_FIELD: Final = "SecurityToken"  # noqa: S105 - a field's name


def signature_of(
    fields: Mapping[str, str], body: bytes, secret: str, leave_out: Collection[str] = ()
) -> str:
    """Return Base64 of HMAC-SHA1; `leave_out` names further fields that are not signed."""
    names = [name for name in fields if name != SIGNATURE_FIELD and name not in leave_out]
    names.sort(key=_java_order)
    text = "".join([fields[name] for name in names])
    digest = hmac.new(secret.encode(), text.encode() + body, "sha1").digest()
    return base64.b64encode(digest).decode("ascii")


def signatures_equal(one: str, other: str) -> bool:
    """Compare in a time that does not depend on how much of them is equal."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())


class Signer:
    """The signing key of one account; its secret does not appear in its text form."""

    __slots__ = ("_access_key", "_secret", "_security_token")

    def __init__(self, access_key: str, secret: str, security_token: str | None = None) -> None:
        self._access_key = access_key
        self._secret = secret
        self._security_token = security_token

    def __repr__(self) -> str:
        return f"Signer({self._access_key!r})"

    def sign(self, command: RemotingCommand) -> None:
        """Add the account's fields and signature to a request that is complete otherwise.

        Raises UnencodableError where its text can't be signed, nor sent.
        """
        fields = {**command.ext_fields, ACCESS_KEY_FIELD: self._access_key}
        if self._security_token is not None:
            fields[SECURITY_TOKEN_FIELD] = self._security_token
        try:
            fields[SIGNATURE_FIELD] = signature_of(fields, command.body, self._secret)
        except UnicodeEncodeError as error:
            raise UnencodableError(
                f"command {command.code} holds text that is not UTF-8: {error}"
            ) from error
        command.ext_fields = fields


def _java_order(name: str) -> bytes:
    """Return a sort key by UTF-16 units, as Java compares; Python compares code points."""
    return name.encode("utf-16-be", "surrogatepass")
