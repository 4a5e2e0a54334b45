"""What the agent does on its own: identity, follows, announcements, upkeep, audit, recovery."""
