"""The checks: one anomaly per function, from shared DataFrames to a DataFrame of findings."""
