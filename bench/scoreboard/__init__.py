"""The scoreboard: one program in every library, each in a process of its own."""
