"""The relay's verbs for Aether: publish, subscribe, streams by HTTP, Noise sessions."""
