"""The command line: wires the packages' commands together and holds no logic of its own."""
