"""One module per family of requests: each turns a RemotingCommand into proposals and answers."""
