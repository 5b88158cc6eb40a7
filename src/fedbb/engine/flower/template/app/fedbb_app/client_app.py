"""What a site runs."""

from fedbb.engine.flower.client import app

__all__ = ["app"]
