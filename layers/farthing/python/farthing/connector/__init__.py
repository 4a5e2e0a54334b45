"""The connector's verbs: what happens to an ILP packet. They hold every rule of the connector."""
