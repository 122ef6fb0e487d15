"""Parts of work beyond plain sends, transactions and pulls: one module each, listed in `catalogue`.

`part` says what a part is. A part has topics, slots and consumer groups of its own, whose names
begin with the part's, records all that it did, and names the rules that judge it.

May import: `chaos.cluster`, `chaos.links`, `chaos.recording`, `chaos.scenario`, `chaos.systems`,
  `chaos.workload`, `chaos.workload.talks`, `client`, `remoting`.
"""
