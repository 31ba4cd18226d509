"""Models of Keras 3 from their .keras files, without Keras."""
