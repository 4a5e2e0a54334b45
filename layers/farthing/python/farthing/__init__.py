"""Farthing: a Nostr relay and an Interledger connector in one agent."""

__version__ = "0.1.0"
