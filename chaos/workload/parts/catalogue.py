"""All parts of the workload by name: what a scenario's [workload.NAME] switches on.

Invariant: every section of `chaos.scenario.part_sections` has its row here, under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from chaos.workload.parts import (
    applications,
    assignments,
    broadcast,
    calls,
    disputes,
    drills,
    filters,
    groups,
    litepull,
    longpolls,
    operator,
    orderly,
    pops,
    requests,
    resets,
    retries,
    sends,
    timers,
)
from chaos.workload.parts.accounts import ACCOUNTS
from chaos.workload.parts.deletions import DELETIONS
from chaos.workload.parts.part import PartSpec
from chaos.workload.parts.routes import ROUTES
from chaos.workload.parts.searches import SEARCHES

__all__ = ["PARTS"]

_SPECS: Final[tuple[PartSpec, ...]] = (
    timers.SPEC,
    requests.SPEC,
    sends.SPEC,
    pops.SPEC,
    orderly.SPEC,
    broadcast.SPEC,
    retries.SPEC,
    litepull.SPEC,
    resets.SPEC,
    DELETIONS,
    ROUTES,
    ACCOUNTS,
    SEARCHES,
    groups.SPEC,
    disputes.SPEC,
    filters.SPEC,
    longpolls.SPEC,
    assignments.SPEC,
    drills.SPEC,
    calls.SPEC,
    operator.SPEC,
    applications.SPEC,
)
PARTS: Final[Mapping[str, PartSpec]] = MappingProxyType({spec.name: spec for spec in _SPECS})
