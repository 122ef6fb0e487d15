"""What a group of brokers and a name server cost as what they hold grows ten- and hundredfold.

May import: what `benchmarks` may. `things` fills a broker group with one kind of thing, `costs`
measures it, `name_server` does both for a name server's table, `__main__` writes the figures.
"""
