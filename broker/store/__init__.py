"""What a broker keeps on disk above the replicated log: payloads, records, ConsumeQueues."""
