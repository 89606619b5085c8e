"""Who meets whom in a measurement of all pairs."""


def rounds(ranks: int) -> list[list[tuple[int, int]]]:
    """Each pair once; in a round nobody plays twice, so that all its pairs can be measured at once."""
    seats = [*range(ranks), *([-1] if ranks % 2 else [])]
    played: list[list[tuple[int, int]]] = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats[: len(seats) // 2], reversed(seats), strict=False)
        played.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return played
