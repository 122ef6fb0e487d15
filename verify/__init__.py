"""The verifier: reads a run directory, with Spark, and answers pass, fail or unknown.

It imports none of the packages that it judges, so that no bug can hide in shared code.
"""
