"""The Interledger side of Farthing: packets, addresses, conditions, and events inside packets."""
