"""Talks: requests to a broker that a seed draws, and what a RocketMQ answered to them.

`talk` has the questions of its speakers sent (`talk_sends`, `talk_reads`, `talk_pops`,
`talk_groups`) and `talk_answers` says what of an answer two brokers have to agree on; `recorded`
has the answers of a RocketMQ.

A talk draws nothing by what was answered.

May import: `remoting`.
"""
