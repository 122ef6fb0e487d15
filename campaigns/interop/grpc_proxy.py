"""RocketMQ's proxy before a group of ours: what clients of 5.x with gRPC are pointed at.

    ledgermq-proxy         a group of three
    ledgermq-proxy-kill    a group of three whose leader is killed in the middle of the cases

The proxy is RocketMQ's own, from its Maven jars, in cluster mode.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from campaigns.interop.toolchain import Toolchain
from campaigns.rig.ports import free_port
from campaigns.rig.waiting import await_until
from chaos.cluster.processes import ProcessTable

__all__ = ["PROXY_VERSION", "proxy"]

PROXY_VERSION = "5.5.0"
HEAP = "384m"
READY_S = 90.0
_READY = "rocketmq-proxy startup successfully"


@contextlib.contextmanager
def proxy(
    directory: Path, name_servers: list[str], tools: Toolchain, version: str = PROXY_VERSION
) -> Iterator[str]:
    """The endpoint of a proxy that is ready; `directory` is there and kept."""
    port = free_port()
    (directory / "conf").mkdir()
    config = directory / "conf" / "rmq-proxy.json"
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "proxyName": "proxy",
        "namesrvAddr": ";".join(name_servers),
        "proxyMode": "CLUSTER",
        "localServeAddr": "127.0.0.1",
        "grpcServerPort": port,
        "remotingListenPort": free_port(),
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    table = ProcessTable(directory)
    java = tools.require_java()
    argv = [java, f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    argv += [f"-Duser.home={directory}/home", f"-Drocketmq.home.dir={directory}"]
    argv += [f"-Dcom.rocketmq.proxy.configPath={config}", f"-DRMQ_PROXY_HOME={directory}"]
    argv += ["-cp", f"{tools.proxy(version)}/lib/*", "org.apache.rocketmq.proxy.ProxyStartup"]
    try:
        table.start("proxy", [*argv, "-pm", "CLUSTER", "-pc", str(config)])
        output = table.output_file("proxy")
        await_until(lambda: _READY in output.read_text("utf-8", "replace"), "a proxy", READY_S)
        yield f"127.0.0.1:{port}"
    finally:
        table.stop(["proxy"], timeout_s=10)
