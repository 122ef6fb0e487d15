"""What a check yields: one row per violation, in one shape for all, and what a check is.

Place in the data path: every check's DataFrame of violations is turned into findings, so that the
union of all checks is one Spark query; `verify.run` collects counts and the smallest witnesses
of it.

Invariants: a finding stands for one violation, so counts are exact; `rank` orders a check's
findings so that the smallest comes first; the witness is JSON with the rows, offsets and replicas
that prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from verify.counts import Counts
from verify.frames import Frames
from verify.manifest import Manifest

__all__ = ["Check", "finding_rows", "findings"]

_NUMBER_DIGITS = 20  # of int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the catalogue.

    `needs`: tables without which nothing can be said. `wants`: tables that it looks at where they
    are. `applies`: whether the feature that it checks was on and used. `examined`: how many rows
    it looks at, from the counts of the tables; 0 makes it unknown.
    """

    id: str
    name: str
    promise: str | None
    needs: tuple[str, ...]
    wants: tuple[str, ...] = ()
    applies: Callable[[Manifest, Counts], bool] = lambda manifest, counts: True
    examined: Callable[[Counts], int]
    nothing: str  # the reason where there was nothing to examine
    find: Callable[[Frames], DataFrame]


def findings(
    violations: DataFrame,
    *,
    check: str,
    order: Sequence[str],
    witness: Sequence[str | Column],
    unknown: Column | None = None,
) -> DataFrame:
    """`violations` as findings.

    `order` names the columns that rank them; `unknown` is a string column: where it is set, the
    row is no violation but the reason why nothing can be said.
    """
    reason = F.lit(None).cast("string") if unknown is None else unknown
    kinds = {field.name: field.dataType for field in violations.schema.fields}
    parts = [
        F.coalesce(F.col(name), F.lit(""))
        if isinstance(kinds[name], StringType)
        else F.lpad(F.coalesce(F.col(name).cast("string"), F.lit("")), _NUMBER_DIGITS, "0")
        for name in order
    ]
    return violations.select(
        F.lit(check).alias("check"),
        F.when(reason.isNull(), "fail").otherwise("unknown").alias("verdict"),
        F.concat_ws("\x01", *parts).alias("rank"),
        F.to_json(F.struct(*witness)).alias("witness"),
        reason.alias("reason"),
    )


def finding_rows(all_findings: Sequence[DataFrame]) -> DataFrame:
    """The union of findings."""
    rows = all_findings[0]
    for more in all_findings[1:]:
        rows = rows.union(more)  # by place: `findings` fixes the columns and their order
    return rows
