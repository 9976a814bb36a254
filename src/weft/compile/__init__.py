"""From programs to native code."""
