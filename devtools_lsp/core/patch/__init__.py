"""Patch parsing and placement: the envelope dialect, unified diffs, hunk location."""
