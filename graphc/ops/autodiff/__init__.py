"""Differentiation of regions: chain rule, sums of cotangents, loops and branches."""
