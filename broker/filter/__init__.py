"""Which messages of a topic a consumer wants: by tags, or by an SQL92 expression."""
