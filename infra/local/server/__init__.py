"""The server on one machine: one port for HTTP and WebSocket, the cloud's handlers behind it."""
