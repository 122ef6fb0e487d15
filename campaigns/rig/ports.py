"""Free ports on loopback, for servers that tests and campaigns start.

The ports lie below those that the kernel hands out by itself: an outgoing connection of a test
beside this one never takes a port between the moment it is picked and the moment its server binds
it, or while that server is down between two starts.
"""

from __future__ import annotations

import random
import secrets

from chaos.cluster import processes


def free_port() -> int:
    """Return a port that no process holds now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that no process holds now; raises PortInUseError."""
    return processes.free_ports(count, random.Random(secrets.randbits(64)))
