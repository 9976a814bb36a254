"""The seeds' names for recording, differentiating and planning."""
