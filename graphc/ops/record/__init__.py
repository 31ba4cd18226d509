"""What every op is made of: the record of its family, shapes, effects, derivatives, launches."""
