"""The bottom layer: what an operation, a dtype and a setting is; it calls no array library."""
