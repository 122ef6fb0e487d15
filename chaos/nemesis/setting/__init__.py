"""Faults of settings and releases: changed while a broker runs, or from restart to restart.

`setting_changes` and `older_release` have them; `chaos.nemesis.catalogue` joins their rows.

May import: `chaos.nemesis`, `chaos.nemesis.process`, `chaos.systems`.
"""
