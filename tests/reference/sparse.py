"""Sparse binary, ternary and exact compression of one list of numbers, one by one and slowly."""


def compress(numbers, many, values):
    """Return what is sent of a list: zeros where nothing is."""
    places = range(len(numbers))
    if values == "binary":
        high = sorted(places, key=lambda place: (-numbers[place], place))[:many]
        low = sorted(places, key=lambda place: (numbers[place], place))[:many]
        up = sum(numbers[place] for place in high) / many
        down = -sum(numbers[place] for place in low) / many
        chosen, number = (high, up) if up >= down else (low, -down)
        return [number if place in chosen else 0.0 for place in places]
    chosen = sorted(places, key=lambda place: (-abs(numbers[place]), place))[:many]
    if values == "exact":
        return [numbers[place] if place in chosen else 0.0 for place in places]
    mean = sum(abs(numbers[place]) for place in chosen) / many
    return [
        0.0 if place not in chosen else -mean if numbers[place] < 0 else mean for place in places
    ]
