"""Parts of work beyond plain sends, transactions and pulls, in rooms; `catalogue` lists them all.

`common.part` says what a part is. A part has topics, slots and consumer groups of its own, whose
names begin with the part's, records all that it did, and names the rules that judge it.

May import: `chaos.workload.parts.accounts`, `chaos.workload.parts.administration`,
  `chaos.workload.parts.applications`, `chaos.workload.parts.calls`, `chaos.workload.parts.common`,
  `chaos.workload.parts.consumers`, `chaos.workload.parts.drills`, `chaos.workload.parts.operator`,
  `chaos.workload.parts.producers`.
"""
