"""Microseconds that the remoting codec takes per message, each step by itself.

Run: `python -m benchmarks.remoting_codec`. Every figure is the best of five repeats, so that other
load on the machine matters least.
"""

from __future__ import annotations

import asyncio
import time
import timeit
from collections.abc import Callable

import uvloop

from remoting.connections.connection import Connection
from remoting.connections.rpc import RemotingClient
from remoting.connections.server import RemotingServer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand, SerializeType
from remoting.protocol.frame import FrameDecoder, encode
from remoting.protocol.headers import SendMessageRequestHeader, SendMessageResponseHeader
from remoting.records.message import (
    MessageRecord,
    decode_properties,
    decode_record,
    decode_records,
    encode_properties,
    encode_record,
    scan_records,
)

BODY = bytes(range(256)) * 4
PROPERTIES = {
    "UNIQ_KEY": "7F0000010A2B18B4AAC2348FC8E70001",
    "WAIT": "true",
    "TAGS": "TagA",
    "KEYS": "order-123456",
    "CLUSTER": "DefaultCluster",
}
HEADER = SendMessageRequestHeader(
    producer_group="bench-producer",
    topic="BenchTopic",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=3,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    flag=0,
    properties=encode_properties(PROPERTIES).decode(),
    reconsume_times=0,
    unit_mode=False,
    max_reconsume_times=0,
    batch=False,
    broker_name="broker-a",
)
ANSWER = SendMessageResponseHeader(
    msg_id="7F00000100002A9F0000000000012345",
    queue_id=3,
    queue_offset=123_456,
    transaction_id=PROPERTIES["UNIQ_KEY"],
)
RECORD = MessageRecord(
    topic="BenchTopic",
    queue_id=3,
    body=BODY,
    properties=encode_properties(PROPERTIES),
    queue_offset=17,
    physical_offset=4711,
    born_timestamp_ms=1_700_000_000_000,
    born_host="127.0.0.1:40000",
    store_timestamp_ms=1_700_000_000_001,
    store_host="127.0.0.1:10911",
)


def report(name: str, call: Callable[[], object], number: int = 20_000, per: int = 1) -> float:
    microseconds = min(timeit.repeat(call, number=number, repeat=5)) / number / per * 1e6
    print(f"{name:58} {microseconds:8.2f} us")
    return microseconds


def request(serialize_type: SerializeType) -> RemotingCommand:
    return RemotingCommand(
        code=RequestCode.SEND_MESSAGE_V2,
        opaque=7,
        ext_fields=HEADER.to_ext_fields(),
        body=BODY,
        serialize_type=serialize_type,
    )


def frames() -> None:
    for kind in SerializeType:
        sent = request(kind)
        frame = encode(sent)
        decoder = FrameDecoder()
        (received,) = decoder.feed(frame)
        answer = received.response(ResponseCode.SUCCESS, ext_fields=ANSWER.to_ext_fields())
        answer_frame = encode(answer)
        size = f"{kind.name}, {len(frame)} B"
        broker = (
            report(f"decode send request ({size})", lambda d=decoder, f=frame: d.feed(f))
            + report(
                "read its header",
                lambda r=received: SendMessageRequestHeader.from_ext_fields(r.ext_fields),
            )
            + report(
                "make the answer",
                lambda r=received: r.response(0, ext_fields=ANSWER.to_ext_fields()),
            )
            + report("encode the answer", lambda a=answer: encode(a))
        )
        client = (
            report("make send request", lambda k=kind: request(k))
            + report("encode send request", lambda s=sent: encode(s))
            + report("decode the answer", lambda d=decoder, f=answer_frame: d.feed(f))
        )
        print(f"  broker's side together {broker:.2f} us, client's side {client:.2f} us")
    # A frame of 4 MiB that arrives in pieces of 64 KiB.
    large = encode(RemotingCommand(code=0, flag=1, body=bytes(4 * 1024 * 1024)))
    pieces = [large[at : at + 65_536] for at in range(0, len(large), 65_536)]
    decoder = FrameDecoder()
    report("decode 4 MiB in 65 pieces", lambda: [decoder.feed(p) for p in pieces], number=20)


def records() -> None:
    encoded = encode_record(RECORD)
    block = encoded * 32
    report(f"encode record ({len(encoded)} B)", lambda: encode_record(RECORD))
    report("decode record", lambda: decode_record(encoded))
    report("decode record of a pull of 32", lambda: decode_records(block), number=1000, per=32)
    report("scan record of a pull of 32", lambda: list(scan_records(block)), number=1000, per=32)
    report("decode properties", lambda: decode_properties(RECORD.properties))
    report("encode properties", lambda: encode_properties(PROPERTIES))


async def round_trips(in_flight: int, count: int) -> float:
    def on_request(connection: Connection, command: RemotingCommand) -> None:
        SendMessageRequestHeader.from_ext_fields(command.ext_fields)
        connection.send(command.response(0, ext_fields=ANSWER.to_ext_fields()))

    server = RemotingServer("127.0.0.1", 0, on_request)
    await server.start()
    client = RemotingClient()

    async def send_requests() -> None:
        for _ in range(count // in_flight):
            await client.request(server.address, request(SerializeType.JSON), 3000)

    began = time.perf_counter()
    await asyncio.gather(*[send_requests() for _ in range(in_flight)])
    seconds = time.perf_counter() - began
    await client.close()
    await server.stop()
    return seconds / count * 1e6


def main() -> None:
    frames()
    records()
    for in_flight in (1, 64):
        best = min(uvloop.run(round_trips(in_flight, 12_800)) for _ in range(3))
        print(
            f"{f'request and answer over TCP, {in_flight} in flight, both ends':58} {best:8.2f} us"
        )


if __name__ == "__main__":
    main()
