"""Where values lie: packed constants, recomputation under a limit, donation, the plan."""
