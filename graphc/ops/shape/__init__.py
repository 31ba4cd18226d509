"""Where elements lie: reshape, slices, padding, arrays put together, arrays made from nothing."""
