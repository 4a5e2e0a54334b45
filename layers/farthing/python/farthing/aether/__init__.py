"""Aether, pure: values, codecs and rules. Time, randomness and network come in as arguments."""
