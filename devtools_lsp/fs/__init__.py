"""The disk: file systems, the path policy, the write gauntlet, and the journal.

`opening.open_local(root, ...)` composes it for a root on the local disk: a recovered `LocalFileSystem`, its
`PathPolicy`, and the `WriteGauntlet` over both. Embedders with files elsewhere bring an adapter of four methods and
put a `WriteGauntlet` over it; `conformance` tests such an adapter, `memory` is one.

From the outside in::

    gauntlet      the eight stages · adapters  stages 6 to 8 for duck-typed file systems
    policy        the verdict on a path · names, matching (pure) · protected  places of git and the daemon · layout
    local         asyncio face and threads · disk  reads and single changes
    transaction   what a list of mutations means (effects) and whether it may be
    carrying      how it happens: staged (stager), recorded, swapped, taken back (revert, partly) · recovery · undo
    journal       one session, its records, retention · place, abandoned · records, journal_names  the formats
    walk          from a path to an open directory · parents · staging  one file and its swap · syscalls

What it does not do: it cannot bind processes that it did not start (bash, engines that are commands), and a
directory that is moved out of the root while it is open still gets the one write that is under way. A program that
saves into a file in place, and opened it just before a commit replaced it, writes into the before-image: its bytes are
then in the journal, and the undo of that plan says that the old content is not what it was.
"""
