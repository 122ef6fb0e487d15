"""Who may judge a run, by the names that the command line takes.

Place in the data path: `verify.run` judges by them; whoever only checks a name loads nothing of the
engines.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

__all__ = ["ENGINES", "EngineChoice"]

EngineChoice: TypeAlias = Literal["both", "duckdb", "spark"]
ENGINES: Final[tuple[EngineChoice, ...]] = ("both", "duckdb", "spark")
