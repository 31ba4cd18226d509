"""`gc.Session` and `gc.Variable`: one graph that grows, state that outlives a run."""
