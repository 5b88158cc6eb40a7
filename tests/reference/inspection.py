"""The figures of an inspection, transcribed from their definitions loop by loop."""

import math


def counts(rows, owners, clients, classes):
    """Return positives and negatives, clients × classes; rows hold 1, 0 and None for unknown."""
    positive = [[0] * classes for _ in range(clients)]
    negative = [[0] * classes for _ in range(clients)]
    for row, owner in zip(rows, owners, strict=True):
        for place, mark in enumerate(row):
            if mark == 1:
                positive[owner][place] += 1
            elif mark == 0:
                negative[owner][place] += 1
    return positive, negative


def mix(rows, classes):
    """Return how rows spread over the classes, those without any in the last place."""
    mass = [0.0] * (classes + 1)
    for row in rows:
        held = [place for place, mark in enumerate(row) if mark == 1]
        for place in held:
            mass[place] += 1 / len(held)
        if not held:
            mass[classes] += 1
    return [value / len(rows) for value in mass]


def distance(one, other):
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2


def effective(count, beta, tau):
    """Eq. 3 as a sum: 1 + β^(1/τ)… has no closed form for fractions, so as printed."""
    return (1 - beta ** (count / tau)) / (1 - beta)


def alpha(positive, negative, beta, tau):
    """Eq. 4 as printed, with its limits where an effective number is zero."""
    if positive == 0 and negative == 0:
        return 0.5
    if positive == 0:
        return 1.0
    if negative == 0:
        return 0.0
    one, other = 1 / effective(positive, beta, tau), 1 / effective(negative, beta, tau)
    return one / (one + other)


def loss_shares(positive, negative, alphas):
    """Return parts of the loss (raw, cased, classed) of multi-label classes, each two lists."""
    stages = []
    for power in (None, 0, 1):
        pairs = [[], []]
        for a, b, weight in zip(positive, negative, alphas, strict=True):
            if power is None:
                pairs[0].append(a)
                pairs[1].append(b)
            else:
                pairs[0].append(weight**power * weight * a)
                pairs[1].append(weight**power * (1 - weight) * b)
        total = sum(pairs[0]) + sum(pairs[1])
        stages.append([[v / total if total else v for v in side] for side in pairs])
    return stages


def gini(values):
    total = sum(values)
    if total == 0:
        return 0.0
    gaps = sum(abs(a - b) for a in values for b in values)
    return gaps / (2 * len(values) * total)


def entropy(shares):
    return -sum(share * math.log2(share) for share in shares if share > 0)


def label_sets(rows):
    found = {}
    for row in rows:
        key = frozenset(place for place, mark in enumerate(row) if mark == 1)
        found[key] = found.get(key, 0) + 1
    return found


def together(rows, classes):
    table = [[0] * classes for _ in range(classes)]
    for row in rows:
        for one in range(classes):
            for other in range(classes):
                table[one][other] += row[one] == 1 and row[other] == 1
    return table


def spread(positive, negative, reading):
    """R of one client, over the classes of which it knows any label."""
    pairs = [(a, a + b) for a, b in zip(positive, negative, strict=True) if a + b > 0]
    if reading == "printed":
        return 1.0
    if reading != "count-std" and sum(a for a, _ in pairs) == 0:
        return 1.0
    values = [a if reading == "count-std" else a / whole for a, whole in pairs]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return variance if reading == "share-var" else math.sqrt(variance)


def shared_patients(patients, owners, clients):
    homes = {}
    for patient, owner in zip(patients, owners, strict=True):
        homes.setdefault(patient, set()).add(owner)
    return [
        sum(owner in home and len(home) > 1 for home in homes.values()) for owner in range(clients)
    ]
