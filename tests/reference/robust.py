"""Robust rules one number at a time, as their papers tell them."""


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def trimmed_mean(values, weights, cut):
    """Values in the order of their clients; of equal ones the earlier is taken as the lower."""
    order = sorted(range(len(values)), key=lambda place: (values[place], place))
    kept = order[cut : len(order) - cut]
    total = sum(weights[place] for place in kept)
    if total == 0:
        return sum(values[place] for place in kept) / len(kept)
    return sum(weights[place] * values[place] for place in kept) / total


def krum_scores(vectors, byzantine):
    """Return Σ‖V_i − V_j‖² over the n − f − 2 vectors j that are nearest to i."""
    scores = []
    for i, one in enumerate(vectors):
        distances = []
        for j, other in enumerate(vectors):
            if i != j:
                distances.append(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
        scores.append(sum(sorted(distances)[: len(vectors) - byzantine - 2]))
    return scores
