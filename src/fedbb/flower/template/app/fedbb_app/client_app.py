"""What a site runs."""

from fedbb.flower.app.client import app

__all__ = ["app"]
