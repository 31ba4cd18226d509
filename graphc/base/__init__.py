"""What every room stands on: records, hints for misspelt names, layouts of shared memory.

Nothing here knows of graphs; of graphc it imports `errors` alone.
"""
