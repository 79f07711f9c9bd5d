"""What the tests of this room need: trees to work in, and a look at processes."""

from tests.workspaces import end_the_fork_server, eventually, nap, plant, root, running

__all__ = ["end_the_fork_server", "eventually", "nap", "plant", "root", "running"]
