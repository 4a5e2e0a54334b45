"""The relay's verbs, one a module. They know nothing of AWS, and hold every rule of the relay."""
