"""Routines: native code for rows that are no loop nests of elementwise steps."""
