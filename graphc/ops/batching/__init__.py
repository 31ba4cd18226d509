"""`vmap`: a function of one lane as a function of all lanes."""

# Their rules enter the tables of `batch_region` and `device_lanes`.
from graphc.ops.batching import device_regions as device_regions
from graphc.ops.batching import regions as regions
