"""What loops need not do in every step."""
