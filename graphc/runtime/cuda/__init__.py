"""GPUs: the same step table as on a CPU, walked from Python, its kernels launched on a device.

interface   what a driver does: memory, copies, launches, streams, events, graphs
driver      the real one (cuda.bindings)      simulator  kernels as Python functions, for tests
part        the share of a GPU in a program   frame      one run of it
walk        follows the rows of a table       plan       does them, or writes them down for later
transfer    arguments and results             messages   what goes to other devices of a run
mirror      variables                         stacks     what gradients of loops remember
memory      errors of a full device           blocks     memory of arrays that stay
product     a product that BLAS can make      products   who makes each of them
places      where its matrices lie            trial      tries who is right and faster
cublas      cuBLASLt
foreign     arrays of other libraries         native     calls and statuses between C and Python
"""
