"""The rules and stages as files: read, ordered, turned into DuckDB's SQL, printed as docs/RULES.md.

May import: nothing of ledgermq.
"""
