"""MOON's contrast, sample by sample in plain floats."""

import math


def cosine(one, two):
    dot = sum(a * b for a, b in zip(one, two, strict=True))
    sizes = [math.sqrt(sum(a * a for a in vector)) for vector in (one, two)]
    return dot / (sizes[0] * sizes[1])


def contrast(embedding, near, far, temperature):
    total = 0.0
    for z, z_near, z_far in zip(embedding, near, far, strict=True):
        up = math.exp(cosine(z, z_near) / temperature)
        down = math.exp(cosine(z, z_far) / temperature)
        total += -math.log(up / (up + down))
    return total / len(embedding)
