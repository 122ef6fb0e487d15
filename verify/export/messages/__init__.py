"""Message records, log entries and ConsumeQueue units as columns, whichever system stored them.

`entries` and `record_fields` hold what a reader of files found, `properties`, `slices` and
`digests` read what is inside of records, `records` derives their columns, `queue_units` reads
ConsumeQueues, `log_rows` puts the rows of the table `log` together, `listed_files` sorts the files
of stores by their names.

It opens no file but those of ConsumeQueues, and never decides where an entry begins or whether it
is sound: that is for the readers of each system's files.

May import: `verify.sources`.
"""
