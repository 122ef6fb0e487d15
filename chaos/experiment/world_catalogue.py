"""The worlds by name: how each is laid out and built, and what it needs of this host.

Place in the data path: `chaos.experiment.experiment` builds one; `ledgermq chaos worlds` prints
them.

Invariant: a world whose needs are not met is refused by the name of what is missing, before any
process is started.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from chaos.cluster.engines import ENGINES
from chaos.cluster.external_file import ExternalCluster, ExternalFileError, read_file
from chaos.cluster.layout import ClusterLayout, fixed_ports, lay_out
from chaos.cluster.rocketmq_layout import MODES
from chaos.experiment.rocketmq_world import (
    ROCKETMQ_SETTINGS,
    lay_out_rocketmq_scenario,
    make_rocketmq_world,
    missing_for_rocketmq,
    settings_problem,
)
from chaos.experiment.scenario_layout import broker_settings, lay_out_scenario
from chaos.links.base import LinkEffect
from chaos.links.external import ExternalLinks
from chaos.links.netns import NetnsLinks
from chaos.links.proxies import ProxyLinks
from chaos.netns import host_probe
from chaos.netns.plan import at_namespace_addresses
from chaos.scenario.scenario import Scenario
from chaos.sim.world.simulated_host import SimulatedHost, at_simulated_addresses
from chaos.sim.world.simulated_links import SimulatedLinks
from chaos.sim.world.simulated_system import SimulatedSystem
from chaos.systems.base import Part
from chaos.systems.external import ExternalSystem
from chaos.systems.ledgermq import LedgermqSystem
from chaos.systems.ledgermq_releases import release_problem
from chaos.systems.rocketmq.system import RocketmqSystem
from chaos.worlds.host import Host, RealHost, WorldOptions
from chaos.worlds.world import World

__all__ = ["WORLDS", "WorldSettingsError", "WorldSpec", "worlds_of"]

_RELEASE: Final = "release"


class WorldSettingsError(Exception):
    """A setting of a world is unknown or can't be used; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """A row of `ledgermq chaos worlds`.

    `missing` returns what this host lacks, None: nothing. `parts`, `effects`: what its system and
    its links can have. `settings`: name = default of what a person may set of the world, as text.
    `engines`: what its system can replicate with. `lay_out` takes the run directory too,
    `make_host` the experiment's seed; they raise WorldSettingsError. `has_proxies`: its links may
    be proxies, which a Toxiproxy of one's own can have. `has_accounts`: its brokers refuse whoever
    they don't know, where a scenario says so (`cluster.access`).
    """

    name: str
    summary: str
    missing: Callable[[], str | None]
    parts: frozenset[Part]
    effects: frozenset[LinkEffect]
    lay_out: Callable[[Scenario, Path, Mapping[str, str]], ClusterLayout]
    make_host: Callable[[int, Mapping[str, str]], Host]
    settings: Mapping[str, str] = field(default_factory=dict)
    engines: Sequence[str] = ENGINES
    has_proxies: bool = False
    has_accounts: bool = True

    def settings_with(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return all settings. Raises WorldSettingsError for one that the world does not have."""
        for name in given:
            if name not in self.settings:
                known = ", ".join(self.settings) or "none"
                raise WorldSettingsError(
                    f"the world {self.name} has no setting {name!r}: known are {known}"
                )
        return {**self.settings, **given}


def worlds_of(parts: frozenset[Part], effects: frozenset[LinkEffect]) -> list[str]:
    """Return the names of the worlds that have all of these parts and effects."""
    return [w.name for w in WORLDS.values() if parts <= w.parts and effects <= w.effects]


def _nothing_missing() -> None:
    return None


def _on_free_ports(scenario: Scenario, run: Path, _: Mapping[str, str]) -> ClusterLayout:
    return lay_out_scenario(scenario, run)


def _on_simulated_machines(scenario: Scenario, run: Path, _: Mapping[str, str]) -> ClusterLayout:
    cluster = scenario.cluster
    layout = lay_out(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        ports=fixed_ports(
            groups=cluster.groups,
            replicas=cluster.replicas,
            name_servers=cluster.name_servers,
            name_server_port=9876,
            base_port=10911,
        ),
        engine=cluster.engine,
        raft_settings=scenario.raft_settings,
        broker_settings=broker_settings(scenario, run),
    )
    return at_simulated_addresses(layout)


def _in_namespaces(scenario: Scenario, run: Path, _: Mapping[str, str]) -> ClusterLayout:
    return at_namespace_addresses(lay_out_scenario(scenario, run))  # its ports are given new ones


def _local(options: WorldOptions, *, release: str) -> World:
    system = LedgermqSystem(
        options.run, options.layout, failpoints=options.failpoints, release=release
    )
    links = ProxyLinks(
        options.run,
        options.layout,
        options.client_slots,
        process_state=system.processes.state,
        toxiproxy_url=options.toxiproxy_url,
        seed=options.rng.getrandbits(31),
        layout_now=lambda: system.layout,
    )
    return World("local", system, links, options.client_slots)


def _netns(options: WorldOptions, *, release: str) -> World:
    links: NetnsLinks

    def inside(name: str, argv: list[str]) -> list[str]:
        return links.inside(name, argv)

    system = LedgermqSystem(
        options.run,
        options.layout,
        failpoints=options.failpoints,
        inside=inside,
        release=release,
    )
    links = NetnsLinks(
        options.layout,
        options.client_slots,
        process_state=system.processes.state,
        rng=random.Random(options.rng.getrandbits(64)),
        layout_now=lambda: system.layout,
    )
    return World("netns", system, links, options.client_slots)


def _host_with_releases(make: Callable[..., World]) -> Callable[[int, Mapping[str, str]], Host]:
    """Return what makes the host of a world whose nodes may run an older release."""

    def make_host(_: int, settings: Mapping[str, str]) -> Host:
        release = settings.get(_RELEASE, "")
        problem = release_problem(release) if release else None
        if problem is not None:
            raise WorldSettingsError(f"--set {_RELEASE}=...: {problem}")
        return RealHost(functools.partial(make, release=release))

    return make_host


def _external_layout(_: Scenario, _run: Path, settings: Mapping[str, str]) -> ClusterLayout:
    return _external_cluster(settings).layout


def _external_host(_: int, settings: Mapping[str, str]) -> Host:
    cluster = _external_cluster(settings)

    def make(options: WorldOptions) -> World:
        system = ExternalSystem(options.run, cluster)
        return World("external", system, ExternalLinks(cluster), options.client_slots)

    return RealHost(make)


def _external_cluster(settings: Mapping[str, str]) -> ExternalCluster:
    if not settings["file"]:
        raise WorldSettingsError("--set file=CLUSTER.toml says which cluster it is")
    try:
        return read_file(Path(settings["file"]))
    except ExternalFileError as error:
        raise WorldSettingsError(str(error)) from error
    except OSError as error:
        raise WorldSettingsError(f"{settings['file']}: {error.strerror or error}") from error


def _rocketmq_layout(scenario: Scenario, _: Path, settings: Mapping[str, str]) -> ClusterLayout:
    problem = settings_problem(settings)
    if problem is not None:
        raise WorldSettingsError(problem)
    return lay_out_rocketmq_scenario(scenario, settings)


def _rocketmq_host(_: int, settings: Mapping[str, str]) -> Host:
    return RealHost(functools.partial(make_rocketmq_world, settings=settings))


def _simulated_host(seed: int, _: Mapping[str, str]) -> Host:
    return SimulatedHost(f"experiment/{seed}")


WORLDS: Final[Mapping[str, WorldSpec]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            WorldSpec(
                name="local",
                summary="processes of this host, a Toxiproxy proxy on every link",
                missing=_nothing_missing,
                parts=LedgermqSystem.all_parts,
                effects=ProxyLinks.effects,
                lay_out=_on_free_ports,
                make_host=_host_with_releases(_local),
                settings={_RELEASE: ""},
                has_proxies=True,
            ),
            WorldSpec(
                name="netns",
                summary="processes of this host, each in a network namespace of its own: packets"
                " are dropped, lost and delayed, nothing stands in their path",
                missing=host_probe.missing,
                parts=LedgermqSystem.all_parts,
                effects=NetnsLinks.EFFECTS,
                lay_out=_in_namespaces,
                make_host=_host_with_releases(_netns),
                settings={_RELEASE: ""},
            ),
            WorldSpec(
                name="sim",
                summary="the same brokers, name servers and clients on virtual time: simulated"
                " disks, clocks and network, repeated exactly by the seed",
                missing=_nothing_missing,
                parts=SimulatedSystem.all_parts,
                effects=SimulatedLinks.effects,
                lay_out=_on_simulated_machines,
                make_host=_simulated_host,
            ),
            WorldSpec(
                name="external",
                summary="a cluster that somebody else runs, broken by commands of one's own",
                missing=_nothing_missing,
                parts=frozenset({Part.PROCESSES}),
                effects=frozenset({LinkEffect.CUT}),
                lay_out=_external_layout,
                make_host=_external_host,
                settings={"file": ""},
                has_accounts=False,
            ),
            WorldSpec(
                name="rocketmq",
                summary="Apache RocketMQ's brokers and name servers as processes of this host, a"
                " Toxiproxy proxy on every link that RocketMQ lets one choose, or each in a network"
                " namespace of its own (links=netns)",
                missing=missing_for_rocketmq,
                parts=RocketmqSystem.parts,
                effects=ProxyLinks.effects,
                lay_out=_rocketmq_layout,
                make_host=_rocketmq_host,
                settings=ROCKETMQ_SETTINGS,
                engines=tuple(MODES),
                has_proxies=True,
                has_accounts=False,
            ),
        )
    }
)
