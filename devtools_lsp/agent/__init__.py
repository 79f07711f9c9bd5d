"""What an agent is offered: tools, artifacts, search and a shell."""
