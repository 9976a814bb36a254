"""Operations with derivatives that the user states."""
