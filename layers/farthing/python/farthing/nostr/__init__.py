"""The Nostr protocol: events, filters, messages. Pure values; nothing here does I/O."""
