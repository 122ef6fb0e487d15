"""LEDGERMQ_FAILPOINTS: what can be made to fail in this process, and what is.

Place in the data path: none; sent by `ledgermq failpoints` and the laboratory. Body and answer are
those of `broker.failpoints.orders`.

Invariants: refused unless the process was started with `--failpoints`; without access control only
from this machine, with it from an administrator. Orders are logged with whoever gave them.
"""

from __future__ import annotations

import ipaddress
import logging

import msgspec

from broker.failpoints.orders import OrderError, Switches, decode_order
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from remoting.protocol.codes import ResponseCode

__all__ = ["FailpointsProcessor"]

_log = logging.getLogger(__name__)


class FailpointsProcessor:
    """Requests about the failpoints of this process; None: it was started without."""

    def __init__(self, replica: Replica, switches: Switches | None) -> None:
        self._replica = replica
        self._switches = switches

    def handle(self, request: Request) -> None:
        """Carry an order out and answer with all points. Raises RefusedError."""
        if self._switches is None:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, "this broker was started without --failpoints"
            )
        peer = request.connection.peer
        if not self._replica.config.acl_enable and not _is_of_this_machine(peer):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"failpoints are switched from this machine, or with access control on: not {peer}",
            )
        try:
            order = decode_order(request.command.body)
            if order.arm or order.disarm or order.clock is not None:
                _log.warning("failpoints: an order of %s", peer)
            report = self._switches.carry_out(order)
        except OrderError as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(report))


def _is_of_this_machine(peer: str) -> bool:
    """Return whether "ip:port" is a loopback address."""
    try:
        return ipaddress.ip_address(peer.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False
