"""What is said: codes, commands, headers, frames, routes, and the JSON dialect of Java peers. Pure.

May import: `remoting`.
"""
