"""What a compiled function tells about itself: texts, pictures, times."""
