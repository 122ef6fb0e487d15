"""Transactional messages: half messages, their decisions, and the check-back of the undecided."""
