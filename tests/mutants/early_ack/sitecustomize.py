"""A bug planted into running brokers: sends are answered without fsync and without a majority.

Put this directory on PYTHONPATH and every broker process that is started has the bug; the product
has no switch for it. `tests/chaos/test_planted_bug.py` and `make mutant-experiments` use it: an
experiment that cuts or kills the leader must end in `fail` and name what was lost.
"""

from __future__ import annotations

import sys

if "broker" in sys.orig_argv:
    from raft.node import RaftNode
    from raft.replicated_log import ProposalResult, ProposalStatus
    from raft.segment_log import SegmentLog

    _propose = RaftNode.propose

    def propose(self, fill):
        """Appended here, promised to the caller at once."""
        after = _propose(self, fill)
        status = self.status()
        early = after.get_loop().create_future()
        early.set_result(
            ProposalResult(
                status=ProposalStatus.COMMITTED, index=status.last_index, term=status.term
            )
        )
        return early

    RaftNode.propose = propose
    SegmentLog.sync = lambda self: self.last_index
