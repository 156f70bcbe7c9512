"""The operations of the SQS API: what a call may ask, and what it is answered."""

from .queue_attributes import parse_attributes, render_attributes
from .service import Operations

__all__ = ["Operations", "parse_attributes", "render_attributes"]
