"""Compare the answers that clients received with what was committed.

Place in the data path: `workload` makes proposals and reads, nodes answer them here, and at the end
of a seed the committed log is compared with every answer.

- an acknowledged proposal is in the final log exactly once, at the index of its answer;
- a proposal answered "truncated" is never in it; any other may be in it once, or not at all;
- a ReadIndex read returns at least everything committed on any node before it was requested (so
  also what every earlier read returned, and every acknowledged proposal).
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.sim.machine.violation import Violation
from chaos.sim.seed.coverage import Coverage
from raft.messages import EntryKind, Index, NodeId

__all__ = ["ClientChecker"]

_ID_SIZE = 8


class ClientChecker:
    def __init__(self, coverage: Coverage) -> None:
        self._counts = coverage.counts
        self._proposal_count = 0
        self._acknowledged: dict[int, Index] = {}
        self._truncated: set[int] = set()
        self._read_count = 0
        self._read_floors: dict[int, Index] = {}

    @property
    def acknowledged_count(self) -> int:
        return len(self._acknowledged)

    def new_payload(self, padding: bytes) -> bytes:
        """Return a payload that no other proposal has."""
        self._proposal_count += 1
        self._counts["proposals"] += 1
        return self._proposal_count.to_bytes(_ID_SIZE, "big") + padding

    def on_acknowledged(self, payload: bytes, index: Index) -> None:
        self._counts["proposals_acknowledged"] += 1
        self._acknowledged[_id(payload)] = index

    def on_truncated(self, payload: bytes) -> None:
        self._counts["proposals_truncated"] += 1
        self._truncated.add(_id(payload))

    def on_unknown(self, count: int) -> None:
        self._counts["proposals_unknown"] += count

    def new_read(self, committed_index: Index) -> int:
        """Return the id of a read requested now, with `committed_index` committed somewhere."""
        self._read_count += 1
        self._read_floors[self._read_count] = committed_index
        return self._read_count

    def on_read(self, node: NodeId, request_id: int, index: Index | None) -> None:
        """Check the answer of a read; `index` None is a refusal."""
        floor = self._read_floors.pop(request_id, None)
        if floor is None:
            raise Violation("reads", f"{node} answers read {request_id} twice, or unasked")
        if index is None:
            self._counts["reads_refused"] += 1
            return
        self._counts["reads_served"] += 1
        if index < floor:
            raise Violation(
                "reads",
                f"{node} serves read {request_id} at {index}, though {floor} was committed before "
                "it was asked",
            )

    def check_final(
        self, committed_payloads: Sequence[bytes], committed_kinds: Sequence[EntryKind]
    ) -> None:
        """Compare the whole committed log with every answer, at the end of the seed."""
        places: dict[int, Index] = {}
        for index, payload in enumerate(committed_payloads, start=1):
            if committed_kinds[index - 1] is not EntryKind.DATA:
                continue
            proposal = _id(payload)
            if proposal in places:
                raise Violation(
                    "proposals", f"proposal {proposal} stands at {places[proposal]} and {index}"
                )
            places[proposal] = index
        for proposal, index in self._acknowledged.items():
            if places.get(proposal) != index:
                raise Violation(
                    "proposals",
                    f"proposal {proposal} was acknowledged at {index}, the final log has it at "
                    f"{places.get(proposal)}",
                )
        for proposal in sorted(self._truncated):
            if proposal in places:
                raise Violation(
                    "proposals",
                    f"proposal {proposal} was answered as truncated, and stands at "
                    f"{places[proposal]}",
                )


def _id(payload: bytes) -> int:
    return int.from_bytes(payload[:_ID_SIZE], "big")
