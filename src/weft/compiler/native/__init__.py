"""Native code that every process has beside its programs: calls, threads, comparisons."""
