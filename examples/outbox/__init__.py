"""A shop and a warehouse: an order in one database has its effect in another exactly once.

`shop` takes orders and sends them as transactional messages, `warehouse` consumes them, `database`
opens SQLite or PostgreSQL, `orders` is what both know. README.md tells how it works.

May import: `client`.
"""
