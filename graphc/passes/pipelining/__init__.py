"""Pipeline parallelism: a graph in stages, a batch in chunks, and who does what when."""
