"""A program without Python: one object file with a C entry, its header, and a loader for the web.

entry.py                 the step table as straight native code: calls, copies and branches
missing_instructions.py  what WebAssembly has no instructions for
build.py                 kernels, entry and constants as one object file
header.py                what C needs to call it
web.py                   the linked WebAssembly module and what JavaScript needs to call it
files.py                 writes them
"""
