"""Native code that all programs of a process share: calls, threads, guards."""
