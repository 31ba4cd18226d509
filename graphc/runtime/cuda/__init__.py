"""GPUs: the same step table as on a CPU, walked from Python, its kernels launched on a device.

interface    what a driver does: memory, copies, launches, streams, events, graphs
driver       the real one (cuda.bindings)     simulator     kernels as Python functions, for tests
part         the share of a GPU in a program  frame         one run of it
interpreter  follows the rows of a table      plan          does them, or notes them for later runs
decisions    branches that the device takes   graphs        what was noted, as CUDA graphs
device_code  what decides there               turns         loops of a known length, on the device
transfer     arguments and results            messages      what goes to other devices of a run
memory       errors of a full device          blocks        memory of arrays that stay
stacks       what gradients of loops keep     native        what C and Python tell one another
product      a product that BLAS can make     gemm_choice   who makes each of them
places       where its matrices lie           autotune      tries who is right and faster
cublas       cuBLASLt                         interop       arrays of other libraries
device_variables  variables there and on the host
"""
