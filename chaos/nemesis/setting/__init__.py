"""Faults of settings: changed while a broker runs, or from restart to restart.

`setting_changes` has them; `chaos.nemesis.catalogue` joins their rows.

May import: `chaos.nemesis`, `chaos.nemesis.process`, `chaos.systems`.
"""
