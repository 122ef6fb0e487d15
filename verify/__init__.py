"""The verifier: reads a run directory and answers pass, fail or unknown.

Rules are files of SQL; DuckDB and Spark judge by the same text and must agree. `run` goes from a
manifest to a verdict, `judge` queries the rules that apply, `extent` reports what was examined,
`agreement` compares the two engines, `engine_promises` says what each engine under test promises,
`promised` what of that a run's faults leave, `verdict` is what is written; `vocabulary` refuses a
run with words that the format does not know; `sql` answers a person's own questions.

It imports none of the packages that it judges, so that no bug can hide in shared code. From the
manifest to the verdict no module knows an engine's SQL.

May import: `verify.catalogue`, `verify.engines`, `verify.export`, `verify.sources`, `verify.spark`.
"""
