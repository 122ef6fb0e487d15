"""One experiment: from a scenario to a run directory, with faults, phases and progress.

`experiment` goes through the phases, `world_catalogue` has the worlds by name (`rocketmq_world` is
that of Apache RocketMQ), `load` is the whole workload, `nemesis_runner` takes each fault through
its life on time, `majority_guard` has some wait, `quiesce` makes the cluster whole and reads
everything after the load, `phases` and `progress` report on it; `by_hand` injects a fault without
an experiment, `fault_page` is the table of faults. What an experiment leaves is judged elsewhere.

May import: `chaos.cluster`, `chaos.links`, `chaos.nemesis`, `chaos.nemesis.catalogue`,
  `chaos.nemesis.failpoint`, `chaos.nemesis.member`, `chaos.nemesis.network`,
  `chaos.nemesis.process`, `chaos.nemesis.setting`, `chaos.nemesis.store`, `chaos.netns`,
  `chaos.recording`, `chaos.scenario`, `chaos.sim.world`, `chaos.systems`,
  `chaos.systems.rocketmq`,
  `chaos.workload`, `chaos.workload.parts`, `chaos.workload.parts.common`, `chaos.worlds`, `client`.
"""
