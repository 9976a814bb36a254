"""Running a schedule on the CPU: frames, tasks, the thread pool."""
