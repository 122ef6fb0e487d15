"""Where the tables come from: Parquet files, or the stores of the replicas themselves."""
