"""Probes whether this host can have the network: by making a small one.

Place in the data path: `ledgermq chaos worlds` prints what is missing, and an experiment is refused
by it; what is missing for delays leaves out the faults that need them.

Invariant: an answer is what the kernel did, not what a version or a configuration promises.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import Final

from chaos.netns.departures import Delay
from chaos.netns.namespaces import Namespace, NamespaceError
from chaos.netns.network import Network
from chaos.netns.nf_tables import PacketFilterError
from chaos.netns.plan import NetworkPlan
from chaos.netns.rules import Action, PacketRule

__all__ = ["missing", "missing_for_delays"]

PROGRAMS: Final = {"ip": "iproute2", "nsenter": "util-linux"}  # by Debian's package
_USER_NAMESPACES: Final = (
    Path("/proc/sys/user/max_user_namespaces"),
    Path("/proc/sys/kernel/unprivileged_userns_clone"),
)


def missing() -> str | None:
    """Return what this host lacks; None: nothing."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux' own"
    lacking = [f"{name} (package {of})" for name, of in PROGRAMS.items() if not shutil.which(name)]
    if lacking:
        return f"there is no program {', '.join(lacking)}"
    try:
        Namespace().close()
    except NamespaceError as error:
        return f"{error}: {_way_in()}"
    return _tried(delays=False)


def missing_for_delays() -> str | None:
    """Return what this host lacks to delay packets, where `missing` says nothing."""
    return _tried(delays=True)


def _tried(*, delays: bool) -> str | None:
    network = Network(NetworkPlan(("one", "other"), ()), delays=delays, rng=random.Random(0))
    try:
        network.make()
        flow = network.plan.flow("one", "other")
        actions = (Action.DROP, Action.DROP_SYN, Action.LOSE)
        delay = Delay(latency_ms=1, jitter_ms=0, rate_kb_s=0)
        network.apply(
            [PacketRule(flow=flow, action=action) for action in actions],
            {flow: delay} if delays else {},
        )
    except NamespaceError as error:
        return f"veth pairs and a bridge: {error}"
    except PacketFilterError as error:
        return f"nf_tables in this kernel (family netdev, numgen, fwd): {error}"
    except OSError as error:
        return str(error)
    finally:
        network.close()
    return None


def _way_in() -> str:
    if all(_allows(path) for path in _USER_NAMESPACES):
        return "it takes root, or a user namespace: `unshare -Urn ledgermq chaos run ...`"
    return "it takes root (user namespaces are switched off here)"


def _allows(path: Path) -> bool:
    try:
        return int(path.read_text()) > 0
    except FileNotFoundError:  # a switch that this kernel does not have
        return True
