"""Records what a RocketMQ answers to talks that seeds draw: `chaos/workload/talks/talks.txt`.

`python -m campaigns.interop.record_talks [SEEDS]`; it needs Java. Whoever changes what a talk sends
has to record anew: `tests/chaos/test_talks.py` holds the recorded talks with a broker of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from campaigns.interop.rocketmq import Rocketmq
from campaigns.interop.targets import started
from campaigns.interop.toolchain import Toolchain
from chaos.workload.talks.recorded import Answers, answers_of, write_talks
from chaos.workload.talks.talk import Talk
from remoting.connections.rpc import RemotingClient
from remoting.protocol.command import RemotingCommand

__all__ = ["hold_talks", "main"]

SEEDS: Final = 24
TIMEOUT_MS: Final = 10_000
TOPIC_PREFIX: Final = "RMQ_SYS_"


async def hold_talks(address: str, seeds: Iterable[int]) -> dict[int, Answers]:
    """Hold the talks with the broker at `address`; return what it answered, by seed. Raises
    RemotingError."""
    talks: dict[int, Answers] = {}
    own = secrets.token_hex(3)  # a broker may have held them before
    for seed in seeds:
        rpc = RemotingClient()  # a connection is one client's

        async def request(command: RemotingCommand, rpc: RemotingClient = rpc) -> RemotingCommand:
            return await rpc.request(address, command, TIMEOUT_MS)

        try:
            talk = Talk(
                seed, f"{own}-{seed}", request, broker_name="broker-a", topic_prefix=TOPIC_PREFIX
            )
            steps = await talk.hold()
            talks[seed] = answers_of(talk.desk, steps)
        finally:
            await rpc.close()
    return talks


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="record_talks", description="hold talks with a RocketMQ")
    parser.add_argument("seeds", type=int, nargs="?", default=SEEDS, help="how many talks")
    count = parser.parse_args(arguments).seeds
    folder = Path(tempfile.mkdtemp(prefix="talks-")) / "rocketmq"
    with started("rocketmq", folder, Toolchain.look_up()) as target:
        assert isinstance(target, Rocketmq)
        write_talks(asyncio.run(hold_talks(target.broker, range(1, count + 1))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
