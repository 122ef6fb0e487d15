"""All parts of the workload by name: what a scenario's [workload.NAME] switches on.

Invariant: every section of `chaos.scenario.part_sections` has its row here, under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from chaos.workload.parts.accounts import accounts
from chaos.workload.parts.administration import deletions, groups, routes, searches
from chaos.workload.parts.applications import applications
from chaos.workload.parts.calls import calls
from chaos.workload.parts.common.part import PartSpec
from chaos.workload.parts.consumers import (
    assignments,
    broadcast,
    filters,
    litepull,
    longpolls,
    orderly,
    pops,
    resets,
    retries,
)
from chaos.workload.parts.drills import drills
from chaos.workload.parts.operator import operator
from chaos.workload.parts.producers import disputes, requests, sends, timers

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
    deletions.SPEC,
    routes.SPEC,
    accounts.SPEC,
    searches.SPEC,
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
