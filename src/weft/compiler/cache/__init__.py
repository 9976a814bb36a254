"""Compiled programs on disk: object code and schedules."""
