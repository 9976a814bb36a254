"""`wf.Graph`: programs that are built value by value, and compiled."""
