"""Round-robin schedule for the measurement of all pairs."""


def rounds(ranks: int) -> list[list[tuple[int, int]]]:
    """Return rounds of disjoint pairs, which can run at once; each pair occurs in one round."""
    order = [*range(ranks), *([-1] if ranks % 2 else [])]
    schedule: list[list[tuple[int, int]]] = []
    for _ in range(len(order) - 1):
        pairs = zip(order[: len(order) // 2], reversed(order), strict=False)
        schedule.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
        order = [order[0], order[-1], *order[1:-1]]
    return schedule
