"""A broker's registration, as it sends it."""

from __future__ import annotations

from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import (
    RegisterBrokerRequestHeader,
)
from remoting.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    encode_register_body,
    register_body_crc,
)


def register(
    broker_id: int = 0,
    addr: str = "127.0.0.1:10911",
    name: str = "broker-a",
    term: int = 1,
    topics: tuple[str, ...] = ("T",),
    compressed: bool = False,
    changes: dict[str, str] | None = None,
) -> RemotingCommand:
    body = encode_register_body(
        RegisterBrokerBody(
            data_version=DataVersion(state_version=term, timestamp_ms=5, counter=1),
            topics=[
                TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4)
                for topic in topics
            ],
        ),
        compressed=compressed,
    )
    header = RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=addr,
        cluster_name="DefaultCluster",
        ha_server_addr="127.0.0.1:10912",
        broker_id=broker_id,
        compressed=compressed,
        body_crc32=register_body_crc(body),
    )
    return RemotingCommand(
        code=RequestCode.REGISTER_BROKER,
        ext_fields={**header.to_ext_fields(), **(changes or {})},
        body=body,
    )
