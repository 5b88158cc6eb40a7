"""What the server runs."""

from fedbb.flower.app.server import app

__all__ = ["app"]
