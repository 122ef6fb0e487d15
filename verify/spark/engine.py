"""Spark SQL through PySpark: the second engine, also for runs that outgrow a machine.

Place in the data path: one of the two engines under `verify.judge`. Rules and stages are in its own
SQL and run unchanged.

Invariants: a stage is stored once it is made (in memory, on disk if memory is short), and its plan
is cut there, so that no rule plans it again. One without rows is replaced by a relation that the
optimizer knows to be empty, so that what is joined to it is neither planned nor run: most suspects
of a sound run are none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructType

from verify.catalogue.common_tables import divided
from verify.catalogue.rule_files import Rule, Stage
from verify.engines.engine import FINDINGS_MAX, NOTHING_FOUND, EngineError, Findings, TableFiles
from verify.engines.side_by_side import find_side_by_side, make_side_by_side
from verify.spark.java_errors import JAVA_ERRORS, is_interrupted
from verify.spark.tables import read_table

__all__ = ["SparkEngine"]

_FOUND: Final = "found"
_RULES_AT_A_TIME: Final = 3  # one is planned while the others run
_STAGES_AT_A_TIME: Final = 4  # some of them wait for others
_FEW_ROWS: Final = 200
_FAILURES: Final = (*JAVA_ERRORS, OSError)


class SparkEngine:
    """The temporary views of one session; `close` drops them.

    `suspects`: ids of rules that likely find something, as the first engine said. It decides how
    they are queried, and nothing else.
    """

    name = "spark"

    def __init__(self, session: SparkSession, *, suspects: Collection[str] = ()) -> None:
        self._session = session
        self._suspects = frozenset(suspects)
        self._is_single_task = session.conf.get("spark.sql.shuffle.partitions") == "1"
        self._views: list[str] = []

    def close(self) -> None:
        for name in self._views:
            self._session.catalog.dropTempView(name)
        self._views.clear()

    def load(self, tables: Mapping[str, TableFiles], relations: Mapping[str, pa.Table]) -> None:
        """Load the run's tables, and small ones that are in memory, under their names.

        One without rows stays as it is: put into a partition it would no longer be known
        to be empty, and what is joined to it would be run.
        """
        for name, table in tables.items():
            schema = from_arrow_schema(table.schema)
            with _failing(name):
                frame = read_table(self._session, table.files, schema)
                if any(file.footer().num_rows for file in table.files):
                    frame = self._parted(frame)
                self._register(name, frame)
        for name, relation in relations.items():
            schema = from_arrow_schema(relation.schema)
            with _failing(name):
                # As Arrow it becomes rows of the plan itself. A list of Python's objects would be
                # fetched from a Python process by each query, and joined as if it were large.
                frame = self._session.createDataFrame(relation, schema)
                self._register(name, self._parted(frame) if relation.num_rows else frame)

    def make(self, stages: Sequence[Stage]) -> None:
        for error in self.make_each(stages).values():
            raise error

    def make_each(self, stages: Sequence[Stage]) -> Mapping[str, EngineError]:
        """Make several stages at a time, each after those that it reads."""
        return make_side_by_side(self._make, stages, at_a_time=_STAGES_AT_A_TIME)

    def _make(self, stage: Stage) -> None:
        with self._working_on(stage.name):
            made = self._made(self._planned(stage.text, name=stage.name))
        self._register(stage.name, made)

    def table(self, name: str) -> list[dict[str, object]]:
        with _failing(name):
            rows = self._session.table(name).collect()
        return [row.asDict(recursive=True) for row in rows]

    def findings(self, rule: Rule) -> Findings:
        with self._working_on(rule.id):
            found = self._planned(rule.text, name=rule.id)
            # Most rules find nothing. Whether there is a row is queried without the columns that
            # only a witness needs, and without an order. A suspect would be planned twice by that.
            if rule.id not in self._suspects and found.isEmpty():
                return NOTHING_FOUND
            doubtful = "reason is not null" if "reason" in found.columns else "false"
            plain = [
                f"`{field.name}`"
                for field in found.schema.fields
                if field.name != "reason"
                and not isinstance(field.dataType, StructType | ArrayType | MapType)
            ]
            order = ", ".join(plain) if plain else "1"
            view = f"{_FOUND}_{rule.id}"  # several rules run at a time
            found.createOrReplaceTempView(view)
            rows = self._session.sql(
                f"from {view} select *, count(*) over (partition by {doubtful}) as total__, "
                f"row_number() over (partition by {doubtful} order by {order}) as place__, "
                f"{doubtful} as doubtful__ "
                f"qualify place__ <= {FINDINGS_MAX} order by doubtful__, place__"
            ).collect()
        if not rows:
            return NOTHING_FOUND
        violations = [row for row in rows if not row["doubtful__"]]
        doubts = [row for row in rows if row["doubtful__"]]
        return Findings(
            violations=violations[0]["total__"] if violations else 0,
            doubts=doubts[0]["total__"] if doubts else 0,
            smallest_violations=[_witness(row) for row in violations],
            smallest_doubts=[_witness(row) for row in doubts],
        )

    def findings_of(self, rules: Sequence[Rule]) -> Mapping[str, Findings | EngineError]:
        """Run several rules at a time: half of a small rule's time is planning, on one thread."""
        return find_side_by_side(self.findings, rules, at_a_time=_RULES_AT_A_TIME)

    def _planned(self, text: str, *, name: str) -> DataFrame:
        """Plan a query whose WITH tables that are read more than once are computed before.

        Spark would compute each as often as it is read: one rule scanned a trace 27 times.
        """
        query = divided(text, prefix=name)
        for table in query.shared:
            self._made(self._session.sql(table.text)).createOrReplaceTempView(table.name)
        planned = self._session.sql(query.text)
        for table in query.shared:  # `planned` refers to them from here on
            self._session.catalog.dropTempView(table.name)
        return planned

    @contextmanager
    def _working_on(self, name: str) -> Iterator[None]:
        """Attribute this thread's jobs to a stage or rule, and its errors as `_failing` does.

        Otherwise Spark reads the stack of the calling thread for each RDD that it makes.
        """
        with _failing(name):
            self._session.sparkContext._jsc.setCallSite(name)
            yield

    def _made(self, planned: DataFrame) -> DataFrame:
        """Compute `planned` once and cut its plan there. That it is empty, or its rows if they are
        few, become part of the plans that read it."""
        made = planned.localCheckpoint(eager=False)
        # Taken from the rows themselves: as a query it would be one more plan for each table.
        computed = made._jdf.queryExecution().logical()
        rows = computed.rdd().take(_FEW_ROWS + 1)
        if len(rows) == 0:
            return made.where("false")
        if len(rows) > _FEW_ROWS:
            return made
        return self._parted(self._of_rows(made, computed.output(), rows))

    def _of_rows(self, made: DataFrame, columns: object, rows: object) -> DataFrame:
        """Return a relation of `rows`, Java's array of what `made` holds, that plans contain.

        The optimizer then filters it itself, and sees which of its readers have nothing to read.
        """
        java: Any = self._session.sparkContext._jvm
        relation = java.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(
            columns,
            java.scala.collection.immutable.ArraySeq.unsafeWrapArray(rows),
            False,
            java.scala.Option.empty(),
        )
        of_rows = java.org.apache.spark.sql.classic.Dataset.ofRows
        return type(made)(of_rows(self._session._jsparkSession, relation), self._session)

    def _parted(self, frame: DataFrame) -> DataFrame:
        """Put a small run's tables into one partition, so that no query exchanges rows: several
        queries run at a time instead."""
        return frame.coalesce(1) if self._is_single_task else frame

    def _register(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._views.append(name)


@contextmanager
def _failing(name: str) -> Iterator[None]:
    """Turn Spark's errors within the block into EngineError, with `name` in the message.

    A Ctrl-C while a call is being sent to the JVM makes the call fail like an error of Spark's;
    without the distinction it would end as an unknown check.

    Raises:
        EngineError: Spark raised an error.
        KeyboardInterrupt: the call was interrupted.
    """
    try:
        yield
    except _FAILURES as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from error
        raise EngineError(f"{name}: {_first_line(error)}") from error


def _witness(row: Row) -> dict[str, object]:
    return {
        name: value for name, value in row.asDict(recursive=True).items() if not name.endswith("__")
    }


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
