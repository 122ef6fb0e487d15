"""The rules and stages as files: read, ordered, turned into DuckDB's SQL, printed as docs/RULES.md.

`verify/rules` has a file per rule and `verify/stages` one per shared table, in the SQL that both
engines share (docs/RULE_SQL.md). `rule_files` reads them, `stage_order` and `schedule` decide in
which order they are made, queried and dropped again, `dialect` translates, `tallies` counts what
there was to examine, `common_tables` finds what is read more than once, `rule_page` writes the
page.

Nothing here makes JSON or knows what a rule means.

May import: nothing of ledgermq.
"""
