"""Training of adapters from a configuration file."""
