"""The stages that a query reads, directly or through others, and the order in which to make them.

Place in the data path: `verify.judge`, `verify.extent` and `verify.sql` use it before an engine
makes a stage. Pure.

Invariants: each stage comes after all that it reads itself; a stage that reads itself, through
however many others, is an error that names the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from verify.catalogue.dialect import DialectError, tables_of
from verify.catalogue.rule_files import Stage

__all__ = ["stages_behind", "stages_read"]


def stages_read(text: str, *, name: str, stages: Mapping[str, Stage]) -> tuple[str, ...]:
    """Return the stages that the query `text` needs, in an order in which they can be made.

    Raises:
        DialectError: a stage reads itself, or is not in the subset.
    """
    return stages_behind(tables_of(text, name=name) & set(stages), stages)


def stages_behind(names: Iterable[str], stages: Mapping[str, Stage]) -> tuple[str, ...]:
    """Return the stages `names` and all that they read, in an order in which they can be made.

    Raises:
        DialectError: as `stages_read`.
    """
    ordered: dict[str, None] = {}
    for name in sorted(names):
        _add(name, stages, ordered, ())
    return tuple(ordered)


def _add(
    name: str, stages: Mapping[str, Stage], ordered: dict[str, None], above: tuple[str, ...]
) -> None:
    if name in above:
        raise DialectError(f"stage {name} reads itself, by way of {' '.join(above)}")
    if name in ordered:
        return
    for below in sorted(tables_of(stages[name].text, name=name) & set(stages)):
        _add(below, stages, ordered, (*above, name))
    ordered[name] = None
