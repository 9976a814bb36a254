"""The data between the stages: kernels, schedules, scalar programs, views, products."""
