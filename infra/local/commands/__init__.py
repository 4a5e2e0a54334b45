"""The `farthing` commands, each in a module of its own."""
