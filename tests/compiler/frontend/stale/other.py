"""A module of the user's whose variables and functions are read from elsewhere."""

value = None


def read():
    return value


class Settings:
    value = None
