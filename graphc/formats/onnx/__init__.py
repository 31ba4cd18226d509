"""ONNX models: `gc.load("model.onnx")`.

`reader` turns the file into records, `interpret` runs them once on traced values by the `table` of
`operators`, `model` compiles what came of it for the sizes that it is called with.
"""
