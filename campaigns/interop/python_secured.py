"""Our clients with accounts and TLS; the same lines as Secured.java.

    python -m campaigns.interop.python_secured NAME_SERVER [AUTHORITY]

Who signed the ports' certificates is told where they speak TLS.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from campaigns.interop.matrix import MARK
from client.connection.heartbeat import ConsumeFrom
from client.connection.instance import InstanceSettings
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError, NoPermissionError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from remoting.connections.tls import client_context
from remoting.protocol.acl_signature import Signer

SEND_MS_MAX = 10_000
CONSUME_S_MAX = 30
PRODUCER = Signer("producer1", "secret-of-producer")
CONSUMER = Signer("consumer1", "secret-of-consumer")


def report(name: str, ended: str) -> None:
    sys.stdout.write(f"{MARK}{name}={ended}\n")
    sys.stdout.flush()


async def send(
    name: str, server: str, topic: str, signer: Signer | None, tls: ssl.SSLContext | None
) -> None:
    """A body names its case, so that nothing that was refused is taken for stored."""
    settings = ProducerSettings(instance=InstanceSettings(signer=signer, tls=tls))
    try:
        async with Producer("PG", server, settings=settings) as producer:
            result = await producer.send(Message(topic=topic, body=name.encode()), SEND_MS_MAX)
    except ClientError as error:
        refusal = f"{type(error).__name__}: {error}"
        if not error.definite:
            report(name, f"unknown, {refusal}")
        else:
            report(
                name, f"{'refused' if isinstance(error, NoPermissionError) else 'failed'} {refusal}"
            )
    else:
        report(name, result.status.name)


async def consume(server: str, tls: ssl.SSLContext | None) -> None:
    bodies: set[str] = set()
    came = asyncio.Event()

    async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        bodies.update(message.body.decode() for message in messages)
        came.set()
        return ConsumeStatus.CONSUME_SUCCESS

    instance = InstanceSettings(signer=CONSUMER, tls=tls)
    settings = PushConsumerSettings(instance=instance, consume_from=ConsumeFrom.FIRST)
    consumer = PushConsumer("CG", server, listen, settings=settings)
    consumer.subscribe("orders")
    async with consumer:
        try:
            async with asyncio.timeout(CONSUME_S_MAX):
                await came.wait()
                await asyncio.sleep(2)  # what must not come would have come by now
        except TimeoutError:
            bodies.add("nothing")
    report("consumed", ",".join(sorted(bodies)))


async def main(server: str, authority: Path | None) -> None:
    tls = None if authority is None else client_context(ca_file=authority)
    await send("good", server, "orders", PRODUCER, tls)
    await send("unsigned", server, "orders", None, tls)
    await send("wrong-secret", server, "orders", Signer("producer1", "another-secret"), tls)
    await send("unknown-account", server, "orders", Signer("nobody01", "another-secret"), tls)
    await send("no-permission", server, "payments", PRODUCER, tls)
    if tls is not None:
        await send("plain-text", server, "orders", PRODUCER, None)
    await consume(server, tls)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None))
