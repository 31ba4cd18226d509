"""PyTorch programs: `gc.load("model.pt2")`, `gc.from_torch(module, *examples)`.

`archive` turns a file of torch.export into records without PyTorch, `live` does so with a program
in memory; `interpret` runs them once on traced values by the `table` of `operators`.
"""
