"""Differentiation of regions: chain rule, sums of cotangents, loops and branches."""

# Their rules enter a table of `vjp`.
from graphc.ops.autodiff import loop_gradients as loop_gradients
from graphc.ops.autodiff import region_gradients as region_gradients
