"""POP: consumers without queues of their own; the broker keeps who holds which message."""
