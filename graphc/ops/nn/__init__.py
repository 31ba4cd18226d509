"""Convolution, pooling, normalisation, softmax, attention."""
