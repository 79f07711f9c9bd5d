"""Adapters that turn language servers and commands into engines, and their presets."""
