"""`GradientTape`."""
