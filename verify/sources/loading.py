"""From a manifest to the tables that the checks see.

Place in the data path: after `verify.export.stand_in`, which has made `log` and `cq` where a run
has its stores alone.

Invariants: a table that is not listed is not in the answer; nothing unlisted is read.

Source: the run format, `tables`.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from verify.manifest import Manifest
from verify.schema import TABLES
from verify.sources.tables import read_table

__all__ = ["load_tables"]


def load_tables(session: SparkSession, run: Path, manifest: Manifest) -> dict[str, DataFrame]:
    """The tables that the run has, by name.

    Raises:
        TableError: a listed table does not have the format's columns.
    """
    return {
        name: read_table(session, [run / file.name for file in manifest.tables[name]], schema)
        for name, schema in TABLES.items()
        if name in manifest.tables
    }
