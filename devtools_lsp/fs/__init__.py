"""File systems, the path policy, the write gauntlet and the journal."""
