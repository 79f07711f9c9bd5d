"""Plans: step models, the runtime that runs them, writing, preview and rules."""
