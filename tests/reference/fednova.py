"""FedNova's update of one number, written as in its paper."""


def accumulated(steps, momentum):
    """‖a‖₁ in closed form."""
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def merge(current, values, weights, masses):
    """θ − τ_eff·Σ p·d, with d = (θ − θ_k) / a_k and τ_eff = Σ p·a."""
    directions = [(current - value) / mass for value, mass in zip(values, masses, strict=True)]
    effective = sum(weight * mass for weight, mass in zip(weights, masses, strict=True))
    mean = sum(weight * step for weight, step in zip(weights, directions, strict=True))
    return current - effective * mean
