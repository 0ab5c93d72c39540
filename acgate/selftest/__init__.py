"""The gate against its own corpus: faults that it must catch, clean cases that it must leave alone."""
