"""The server on one machine: one port for HTTP and WebSocket, with the same handlers as in the
cloud."""
