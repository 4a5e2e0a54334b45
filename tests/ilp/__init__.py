"""Interledger: packets, the connector's steps, and events that are paid for."""
