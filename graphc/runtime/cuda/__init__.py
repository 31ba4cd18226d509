"""GPUs: the same step table as on a CPU, walked from Python, its kernels launched on a device.

interface   what a driver does: memory, copies, launches, streams, events, graphs
driver      the real one (cuda.bindings)      simulator   kernels as Python threads, for tests
part        the share of a GPU in a program   frame       one run of it: device memory, launches
walk        follows the rows of a table       mirror      variables on the device
"""
