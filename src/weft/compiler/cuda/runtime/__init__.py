"""Programs on a GPU: their memory, launches and captured graphs."""
