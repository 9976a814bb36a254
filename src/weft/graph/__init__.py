"""Programs as data: typed graphs, the symbols that trace them, and their verifier."""
