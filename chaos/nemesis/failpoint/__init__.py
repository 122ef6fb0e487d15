"""Faults at named points of a broker, of its disk, its power and its clock.

`armed_points` are failpoints and disks that fail, `power_failures` kills that lose what no fsync
had covered, `wrong_clocks` wall clocks that jump, drift and strobe. They need brokers that were
started with failpoints (`cluster.failpoints = true`), or the simulator.

May import: `chaos.nemesis`, `chaos.nemesis.process`, `chaos.systems`.
"""
