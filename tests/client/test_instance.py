"""What one client does in the background, and how it ends, before scripted broker groups."""

from __future__ import annotations

from campaigns.rig.waiting import until
from tests.client.push_setup import Listener, setup


async def test_a_node_whose_name_no_resolver_takes_ends_no_client() -> None:
    async with setup() as cluster:
        brokers = cluster.name_server.brokers
        misnamed = {
            "brokerName": "broker-b",
            "cluster": "DefaultCluster",
            "brokerAddrs": {"0": "broker-b..svc.local:10911"},
        }
        cluster.name_server.brokers = lambda: [*brokers(), misnamed]  # type: ignore[method-assign]
        listener = Listener()
        consumer = await cluster.consumer(listener)
        await until(lambda: "broker-b..svc.local:10911" in consumer.instance.routes.nodes())
        await cluster.send(b"x")
        await until(lambda: listener.bodies == [b"x"])
        peer = consumer.instance.rpc._peers
        await until(lambda: peer["broker-b..svc.local:10911"].failures)
        assert consumer.instance.scope.running
        assert cluster.producer.instance.scope.running
