"""Delayed messages: levels, where they wait, and their delivery."""
