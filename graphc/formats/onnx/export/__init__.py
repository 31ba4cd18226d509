"""Graphs as ONNX models: a table of rules, one for every op that the format has words for."""
