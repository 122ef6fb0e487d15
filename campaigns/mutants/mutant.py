"""What is told of a planted bug beside its patches.

Place in the data path: the modules beside this one, one per area, list their mutants; `catalogue`
joins them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from campaigns.mutants.source_patch import SourcePatch

__all__ = ["Mutant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    breaks: str
    """What no longer holds, in a sentence."""
    expected: tuple[str, ...]
    """The checks that should see it: R1 to R12, G1 to G7, or the simulator's own words."""
    patches: tuple[SourcePatch, ...]
    kind: Literal["core", "group"] = "core"
    """The kind of seeds that run what it breaks: bare cores are the cheaper ones."""
    published: str = ""
    """Where a real system had it."""
    survives: str = ""
    """Why no check can be expected to see it; empty where one must."""
