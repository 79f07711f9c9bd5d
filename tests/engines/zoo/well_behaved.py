"""Nothing is wrong with this one."""

from base import Server

Server().run()
