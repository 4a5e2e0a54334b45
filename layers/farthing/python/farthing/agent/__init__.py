"""The agent's own work, without a request: identity, follows, announcements, upkeep, audit,
recovery."""
