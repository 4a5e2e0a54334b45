"""The real server in a process of its own, and clients that talk to it."""
