"""How ranks share a model and a batch."""
