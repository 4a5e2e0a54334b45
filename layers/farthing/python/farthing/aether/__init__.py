"""Pure code of Aether: values, codecs and rules. Time and randomness are arguments; there is no
network."""
