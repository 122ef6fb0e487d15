"""The report of a run: one HTML file that needs no network.

It reads the run directory, verdict.json included, and nothing else. Path: `source` reads;
`activity`, `faults`, `replicas` and `unavailability` reduce; `charts` draws; `page` puts it into
words; `build` writes the file. The report never judges.

May import: `verify.catalogue`.
"""
