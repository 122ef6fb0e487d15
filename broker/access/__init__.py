"""Access control: accounts, signatures, users and what they may do (RocketMQ's ACL 1.0 and 2.0).

`access_control` is the gate before every handler. `accounts` reads plain_acl.yml, `users`,
`acl_admin` and `user_access` serve the users of 5.x, whose table is replicated in `broker.state`;
`addresses` matches client addresses (decisions 16 and 20). What each request needs is in its row
(`broker.request.needs`).

The room never lets through a request that nobody has thought of, and never logs a secret.

May import: `broker.entry`, `broker.request`, `broker.state`, `remoting`.
"""
