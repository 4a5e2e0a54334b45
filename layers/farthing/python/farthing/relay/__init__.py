"""The relay's verbs, one in each module, with all rules of the relay. No module depends on AWS."""
