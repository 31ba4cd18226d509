"""Along axes: sums and other folds, running totals, statistics, counts."""
