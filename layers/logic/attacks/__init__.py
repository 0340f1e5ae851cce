"""What lying clients of a simulation do to their samples and updates, one kind of lie per file.

Who lies, and where a lie takes effect, belongs in `core.attack`; the liars' knowledge in
`fedmx.simulation`.
"""
