"""Access control: accounts, signatures, permissions by topic and group (RocketMQ's ACL 1.0)."""
